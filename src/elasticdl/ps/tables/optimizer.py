"""The optimizer of a table: a rule, the variant of a framework, and hyperparameters. Pure data."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

Rule = Literal["sgd", "momentum", "adagrad", "rowwise_adagrad", "adam", "amsgrad", "adamw", "ftrl", "rmsprop"]
Dialect = Literal["torch", "keras"]

# The order of the enumerations in native/src/optimizer.h.
RULES: tuple[Rule, ...] = (
    "sgd", "momentum", "adagrad", "rowwise_adagrad", "adam", "amsgrad", "adamw", "ftrl", "rmsprop",
)  # fmt: skip
DIALECTS: tuple[Dialect, ...] = ("torch", "keras")

# The defaults of the frameworks.
_EPSILON = {"torch": {"adagrad": 1e-10}, "keras": {}}
_FRAMEWORK_EPSILON = {"torch": 1e-8, "keras": 1e-7}
_USES_EPSILON = {"adagrad", "rowwise_adagrad", "adam", "amsgrad", "adamw", "rmsprop"}
_ACCUMULATES = {"keras": {"adagrad", "ftrl"}, "torch": {"ftrl"}}
_RHO = {"torch": 0.99, "keras": 0.9}


class Optimizer(BaseModel):
    """An update rule and its hyperparameters. Those that are not set get the framework's defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: Rule = "sgd"
    dialect: Dialect = "torch"
    learning_rate: float = 0.01
    epsilon: float | None = None
    momentum: float = 0.0  # momentum, rmsprop
    nesterov: bool = False  # momentum
    beta1: float = 0.9  # adam, amsgrad, adamw
    beta2: float = 0.999
    rho: float | None = None  # rmsprop
    centered: bool = False  # rmsprop
    initial_accumulator: float | None = None  # adagrad, ftrl
    weight_decay: float = 0.01  # adamw
    l1: float = 0.0  # ftrl
    l2: float = 0.0  # ftrl; with all other rules l2 · row is added to the gradient of each pushed row
    power: float = -0.5  # ftrl
    beta: float = 0.0  # ftrl

    @model_validator(mode="after")
    def _resolve(self) -> Self:
        filled = {
            "epsilon": _EPSILON[self.dialect].get(self.rule, _FRAMEWORK_EPSILON[self.dialect])
            if self.rule in _USES_EPSILON
            else 0.0,
            "rho": _RHO[self.dialect],
            "initial_accumulator": 0.1 if self.rule in _ACCUMULATES[self.dialect] else 0.0,
        }
        for name, value in filled.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        return self
