"""Keras optimizers and initializers as the ps know them."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.errors import ModelError
from elasticdl.keras.embeddings import optimizer_rules
from elasticdl.keras.runtime import keras
from elasticdl.ps.tables.optimizer import Optimizer

optimizers = keras.optimizers


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (optimizers.SGD(0.1), {"rule": "sgd"}),
        (optimizers.SGD(0.1, 0.9, nesterov=True), {"rule": "momentum", "momentum": 0.9, "nesterov": True}),
        (optimizers.Adagrad(0.1), {"rule": "adagrad"}),
        (optimizers.Adam(0.1), {"rule": "adam"}),
        (optimizers.Adam(0.1, amsgrad=True, beta_1=0.8), {"rule": "amsgrad", "beta1": 0.8}),
        (optimizers.AdamW(0.1, weight_decay=0.02), {"rule": "adamw", "weight_decay": 0.02}),
        (optimizers.RMSprop(0.1), {"rule": "rmsprop"}),
        (optimizers.Ftrl(0.1, l1_regularization_strength=0.5), {"rule": "ftrl", "l1": 0.5}),
    ],
    ids=lambda value: value.name if isinstance(value, keras.optimizers.Optimizer) else "",
)
def test_the_rule_has_the_numbers_of_the_optimizer_and_keras_own_defaults(optimizer: Any, expected: Any) -> None:
    assert optimizer_rules.table_optimizer(optimizer) == Optimizer.model_validate({"dialect": "keras", **expected})


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (optimizers.Nadam(), "expected one of SGD, Adagrad"),
        (optimizers.SGD(clipnorm=1.0), r"Received: clipnorm=1\.0"),
        (optimizers.Adam(weight_decay=0.1), r"Received: weight_decay=0\.1"),
    ],
)
def test_optimizers_that_ps_do_not_support_are_refused(optimizer: Any, expected: str) -> None:
    with pytest.raises(ModelError, match=expected):
        optimizer_rules.table_optimizer(optimizer)


@pytest.mark.parametrize(
    ("initializer", "kind"),
    [("uniform", "uniform"), ("zeros", "zeros"), ("normal", "normal"), ("glorot_uniform", "glorot_uniform")],
)
def test_an_initializer_is_the_same_distribution(initializer: str, kind: str) -> None:
    rule = optimizer_rules.table_initializer(keras.initializers.get(initializer))

    assert rule is not None and rule.kind == kind
    assert optimizer_rules.table_initializer(keras.initializers.get("orthogonal")) is None
