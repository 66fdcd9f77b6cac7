from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import optim

from elasticdl.errors import ModelError
from tests import native

native.require()

from elasticdl.model.embeddings import optimizer_rules  # noqa: E402


def build(kind: Any, **options: Any) -> torch.optim.Optimizer:
    built: torch.optim.Optimizer = kind([torch.nn.Parameter(torch.zeros(1))], lr=0.1, **options)
    return built


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        (optim.SGD, {}, {"rule": "sgd"}),
        (optim.SGD, {"momentum": 0.9, "nesterov": True}, {"rule": "momentum", "momentum": 0.9, "nesterov": True}),
        (optim.Adagrad, {"initial_accumulator_value": 0.5}, {"rule": "adagrad", "initial_accumulator": 0.5}),
        (optim.Adam, {"betas": (0.8, 0.9), "eps": 1e-6}, {"rule": "adam", "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-6}),
        (optim.Adam, {"amsgrad": True}, {"rule": "amsgrad"}),
        (optim.AdamW, {"weight_decay": 0.2}, {"rule": "adamw", "weight_decay": 0.2, "l2": 0.0}),
        (optim.Adam, {"weight_decay": 0.2}, {"rule": "adam", "l2": 0.2}),
        (optim.RMSprop, {"alpha": 0.8, "centered": True}, {"rule": "rmsprop", "rho": 0.8, "centered": True}),
    ],
)  # fmt: skip
def test_an_optimizer_becomes_the_rule_of_the_same_name(kind: Any, options: Any, expected: dict[str, Any]) -> None:
    rule = optimizer_rules.table_optimizer(build(kind, **options))

    assert rule.dialect == "torch"
    assert expected.items() <= rule.model_dump().items()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (optim.Adadelta, {}, "expected one of SGD, Adagrad, Adam, AdamW, RMSprop, .* Received: Adadelta"),
        (optim.Adam, {"weight_decay": 0.1, "decoupled_weight_decay": True}, "without decoupled_weight_decay"),
        (optim.SGD, {"momentum": 0.9, "dampening": 0.1}, "without dampening"),
        (optim.Adagrad, {"lr_decay": 0.1}, "without lr_decay"),
        (optim.Adam, {"maximize": True}, "without maximize"),
        (optim.AdamW, {"amsgrad": True}, "without amsgrad"),
    ],
)
def test_an_optimizer_without_a_rule_is_refused_by_name(kind: Any, options: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        optimizer_rules.table_optimizer(build(kind, **options))
