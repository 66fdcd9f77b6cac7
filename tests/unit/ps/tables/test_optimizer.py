"""Every update rule against the oracle, and against the framework's own optimizer on dense data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from elasticdl.ps.tables.initializer import Initializer
from elasticdl.ps.tables.optimizer import Dialect, Optimizer
from elasticdl.ps.tables.table import TableSpec, create_table
from tests.unit.ps import oracle

ROWS, COLUMNS, STEPS = 7, 5, 25

RULES: list[dict[str, Any]] = [
    {"rule": "sgd"},
    {"rule": "sgd", "l2": 0.1},
    {"rule": "adam", "l2": 0.1},
    {"rule": "momentum", "momentum": 0.9},
    {"rule": "momentum", "momentum": 0.9, "nesterov": True},
    {"rule": "adagrad"},
    {"rule": "rowwise_adagrad"},
    {"rule": "adam"},
    {"rule": "amsgrad"},
    {"rule": "adamw", "weight_decay": 0.1},
    {"rule": "ftrl"},
    {"rule": "ftrl", "l1": 0.01, "l2": 0.1, "beta": 0.5, "power": -0.7},
    {"rule": "rmsprop"},
    {"rule": "rmsprop", "momentum": 0.8, "centered": True},
]


def gradients() -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(5).standard_normal((STEPS, ROWS, COLUMNS)).astype(np.float32)


def trained(optimizer: Optimizer) -> np.ndarray[Any, np.dtype[np.float32]]:
    spec = TableSpec(name="t", columns=COLUMNS, optimizer=optimizer, initializer=Initializer(kind="normal"))
    table, ids = create_table(spec, seed=3), np.arange(ROWS) - 3
    values = np.empty((ROWS, COLUMNS), np.float32)
    table.pull(ids, values)
    for step, gradient in enumerate(gradients(), start=1):
        assert table.push(ids, gradient, optimizer.learning_rate, step) == ROWS
    table.pull(ids, values)
    return values


def first_values() -> np.ndarray[Any, np.dtype[np.float32]]:
    values = np.empty((ROWS, COLUMNS), np.float32)
    spec = TableSpec(name="t", columns=COLUMNS, initializer=Initializer(kind="normal"))
    create_table(spec, seed=3).pull(np.arange(ROWS) - 3, values)
    return values


@pytest.mark.parametrize("dialect", ["torch", "keras"])
@pytest.mark.parametrize("numbers", RULES, ids=lambda numbers: "-".join(map(str, numbers.values())))
def test_a_table_does_what_the_oracle_does(numbers: dict[str, Any], dialect: Dialect) -> None:
    optimizer = Optimizer(dialect=dialect, learning_rate=0.05, **numbers)
    expected = first_values().astype(np.float64)
    states: list[dict[str, oracle.Row]] = [{} for _ in range(ROWS)]
    for step, gradient in enumerate(gradients(), start=1):
        for row in range(ROWS):
            oracle.update(optimizer, expected[row], states[row], gradient[row].astype(np.float64), step)

    np.testing.assert_allclose(trained(optimizer), expected, rtol=1e-5, atol=2e-6)


TORCH: list[tuple[dict[str, Any], Callable[[Any], torch.optim.Optimizer]]] = [
    ({"rule": "sgd"}, lambda p: torch.optim.SGD(p, lr=0.05)),
    ({"rule": "momentum", "momentum": 0.9}, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)),
    (
        {"rule": "momentum", "momentum": 0.9, "nesterov": True},
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    ),
    ({"rule": "adagrad"}, lambda p: torch.optim.Adagrad(p, lr=0.05)),
    ({"rule": "adam"}, lambda p: torch.optim.Adam(p, lr=0.05)),
    ({"rule": "amsgrad"}, lambda p: torch.optim.Adam(p, lr=0.05, amsgrad=True)),
    ({"rule": "sgd", "l2": 0.1}, lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1)),
    ({"rule": "adam", "l2": 0.1}, lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.1)),
    ({"rule": "adagrad", "l2": 0.1}, lambda p: torch.optim.Adagrad(p, lr=0.05, weight_decay=0.1)),
    ({"rule": "adamw", "weight_decay": 0.1}, lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1)),
    ({"rule": "rmsprop"}, lambda p: torch.optim.RMSprop(p, lr=0.05)),
    (
        {"rule": "rmsprop", "momentum": 0.8, "centered": True},
        lambda p: torch.optim.RMSprop(p, lr=0.05, momentum=0.8, centered=True),
    ),
]


@pytest.mark.parametrize(("numbers", "make"), TORCH, ids=lambda one: str(one.get("rule")) if type(one) is dict else "")
def test_a_table_does_what_torch_does_on_dense_data(
    numbers: dict[str, Any], make: Callable[[Any], torch.optim.Optimizer]
) -> None:
    weights = torch.nn.Parameter(torch.from_numpy(first_values()))
    optimizer = make([weights])
    for gradient in gradients():
        weights.grad = torch.from_numpy(gradient)
        optimizer.step()

    ours = trained(Optimizer(dialect="torch", learning_rate=0.05, **numbers))
    np.testing.assert_allclose(ours, weights.detach().numpy(), rtol=1e-6, atol=1e-6)
