"""Translates Keras optimizers and initializers into rules and initial values for rows on the ps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elasticdl.errors import ModelError
from elasticdl.keras.runtime import keras
from elasticdl.ps.tables.initializer import Initializer
from elasticdl.ps.tables.optimizer import Optimizer


def table_optimizer(optimizer: Any) -> Optimizer:
    """The rule of a ps with the same numbers. Raises ModelError if a ps has no such rule.

    Rows that a batch does not have are not touched.
    """
    translate = _RULES.get(type(optimizer))
    name = type(optimizer).__name__
    if translate is None:
        supported = ", ".join(kind.__name__ for kind in _RULES)
        raise ModelError(f"optimizer: expected one of {supported}, whose rules the ps know. Received: {name}")
    unsupported = ["clipnorm", "global_clipnorm", "clipvalue", "use_ema", "gradient_accumulation_steps"]
    unsupported += [] if type(optimizer) is keras.optimizers.AdamW else ["weight_decay"]
    refused = [f"{key}={value}" for key in unsupported if (value := getattr(optimizer, key, None))]
    if type(optimizer) is keras.optimizers.AdamW and optimizer.amsgrad:
        refused.append("amsgrad=True")
    if refused:
        raise ModelError(f"optimizer: expected {name} for rows on ps without these. Received: {', '.join(refused)}")
    return Optimizer.model_validate({"dialect": "keras", **translate(optimizer)})


def table_initializer(initializer: Any) -> Initializer | None:
    """The distribution of the initial values; None if a ps does not know it."""
    kinds = keras.initializers
    match initializer:
        case kinds.Zeros():
            return Initializer(kind="zeros")
        case kinds.Ones():
            return Initializer(kind="constant", value=1.0)
        case kinds.Constant() if isinstance(initializer.value, int | float):
            return Initializer(kind="constant", value=float(initializer.value))
        case kinds.GlorotUniform():
            return Initializer(kind="glorot_uniform")
        case kinds.GlorotNormal():
            return Initializer(kind="glorot_normal")
        case kinds.RandomUniform():
            return Initializer(kind="uniform", low=initializer.minval, high=initializer.maxval)
        case kinds.TruncatedNormal():
            return Initializer(kind="truncated_normal", mean=initializer.mean, deviation=initializer.stddev)
        case kinds.RandomNormal():
            return Initializer(kind="normal", mean=initializer.mean, deviation=initializer.stddev)
    return None


def _translate_sgd(optimizer: Any) -> dict[str, Any]:
    if not optimizer.momentum:
        return {"rule": "sgd"}
    return {"rule": "momentum", "momentum": optimizer.momentum, "nesterov": optimizer.nesterov}


def _translate_adagrad(optimizer: Any) -> dict[str, Any]:
    first = optimizer.initial_accumulator_value
    return {"rule": "adagrad", "epsilon": optimizer.epsilon, "initial_accumulator": first}


def _translate_adam(optimizer: Any) -> dict[str, Any]:
    rule = "amsgrad" if optimizer.amsgrad else "adam"
    return {"rule": rule, "epsilon": optimizer.epsilon, "beta1": optimizer.beta_1, "beta2": optimizer.beta_2}


def _translate_adamw(optimizer: Any) -> dict[str, Any]:
    return {**_translate_adam(optimizer), "rule": "adamw", "weight_decay": optimizer.weight_decay}


def _translate_rmsprop(optimizer: Any) -> dict[str, Any]:
    return {
        "rule": "rmsprop", "epsilon": optimizer.epsilon, "rho": optimizer.rho,
        "momentum": optimizer.momentum, "centered": optimizer.centered,
    }  # fmt: skip


def _translate_ftrl(optimizer: Any) -> dict[str, Any]:
    if optimizer.l2_shrinkage_regularization_strength:
        raise ModelError("optimizer: expected Ftrl for rows on ps without l2_shrinkage_regularization_strength")
    return {
        "rule": "ftrl", "power": optimizer.learning_rate_power, "l1": optimizer.l1_regularization_strength,
        "l2": optimizer.l2_regularization_strength, "beta": optimizer.beta,
        "initial_accumulator": optimizer.initial_accumulator_value,
    }  # fmt: skip


_RULES: dict[type, Callable[[Any], dict[str, Any]]] = {
    keras.optimizers.SGD: _translate_sgd,
    keras.optimizers.Adagrad: _translate_adagrad,
    keras.optimizers.Adam: _translate_adam,
    keras.optimizers.AdamW: _translate_adamw,
    keras.optimizers.RMSprop: _translate_rmsprop,
    keras.optimizers.Ftrl: _translate_ftrl,
}
