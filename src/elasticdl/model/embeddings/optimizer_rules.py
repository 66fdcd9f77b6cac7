"""Translates a torch optimizer into the rule that updates rows on the ps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from elasticdl.errors import ModelError
from elasticdl.ps.tables.optimizer import Optimizer

ParameterGroup = Mapping[str, Any]


def table_optimizer(optimizer: torch.optim.Optimizer) -> Optimizer:
    """The rule of a ps with the numbers of the first group. Raises ModelError if a ps has no such rule.

    Rows that a batch does not have are not touched, as with sparse gradients in torch.
    """
    translate = _RULES.get(type(optimizer))
    name = type(optimizer).__name__
    if translate is None:
        supported = ", ".join(kind.__name__ for kind in _RULES)
        raise ModelError(
            f"optimizer: expected one of {supported}, whose rules the ps know. Received: {name}; "
            "use one of them, or give each embedding layer an optimizer of its own"
        )
    group = optimizer.param_groups[0]
    decays = type(optimizer) is torch.optim.AdamW
    refused = [key for key in ("maximize", "lr_decay", "dampening") if group.get(key)]
    refused += ["decoupled_weight_decay"] if group.get("decoupled_weight_decay") and not decays else []
    refused += ["amsgrad"] if decays and group.get("amsgrad") else []
    if refused:
        received = ", ".join(f"{key}={group[key]}" for key in refused)
        raise ModelError(
            f"optimizer: expected {name} without {', '.join(refused)} for rows on ps. Received: {received}"
        )
    l2 = 0.0 if decays else float(group.get("weight_decay", 0.0))
    return Optimizer.model_validate({"dialect": "torch", "l2": l2, **translate(group)})


def _translate_sgd(group: ParameterGroup) -> dict[str, Any]:
    if not group["momentum"]:
        return {"rule": "sgd"}
    return {"rule": "momentum", "momentum": group["momentum"], "nesterov": group["nesterov"]}


def _translate_adagrad(group: ParameterGroup) -> dict[str, Any]:
    accumulator = group.get("initial_accumulator_value", 0.0)
    return {"rule": "adagrad", "epsilon": group["eps"], "initial_accumulator": accumulator}


def _translate_adam(group: ParameterGroup) -> dict[str, Any]:
    beta1, beta2 = map(float, group["betas"])
    rule = "amsgrad" if group["amsgrad"] else "adam"
    return {"rule": rule, "epsilon": group["eps"], "beta1": beta1, "beta2": beta2}


def _translate_adamw(group: ParameterGroup) -> dict[str, Any]:
    return {**_translate_adam(group), "rule": "adamw", "weight_decay": group["weight_decay"]}


def _translate_rmsprop(group: ParameterGroup) -> dict[str, Any]:
    return {
        "rule": "rmsprop", "epsilon": group["eps"], "rho": group["alpha"],
        "momentum": group["momentum"], "centered": group["centered"],
    }  # fmt: skip


_RULES: dict[type[torch.optim.Optimizer], Callable[[ParameterGroup], dict[str, Any]]] = {
    torch.optim.SGD: _translate_sgd,
    torch.optim.Adagrad: _translate_adagrad,
    torch.optim.Adam: _translate_adam,
    torch.optim.AdamW: _translate_adamw,
    torch.optim.RMSprop: _translate_rmsprop,
}
