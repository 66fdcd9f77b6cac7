"""The parameters of XGBoost that a job may have. XGBoost ignores a name that it does not know; this does not.

Names, ranges and defaults are XGBoost's. A parameter that the job itself decides (threads, device, how trees are built)
is refused with what to use instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from elasticdl.errors import SpecError
from elasticdl.spelling import did_you_mean

Share = Annotated[float, Field(gt=0, le=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

_ALIASES = {
    "learning_rate": "eta",
    "min_split_loss": "gamma",
    "reg_lambda": "lambda",
    "reg_alpha": "alpha",
    "random_state": "seed",
}
_DECIDED_BY_THE_JOB = {
    "nthread": "use --threads",
    "n_jobs": "use --threads",
    "device": "use --device",
    "gpu_id": "use --device=cuda",
    "verbosity": "use --log_level",
    "booster": "only trees (gbtree) are elastic",
    "updater": "trees are grown by histograms",
    "process_type": "trees are grown, not updated",
    "refresh_leaf": "trees are grown, not updated",
    "validate_parameters": "they always are",
    "seed_per_iteration": "every round has a seed of its own",
    "num_boost_round": "use rounds",
    "n_estimators": "use rounds",
    "early_stopping_rounds": "it is no parameter of the trees; give it beside them",
}

_OBJECTIVES_OF_TWO_CLASSES = ("binary:logistic", "binary:logitraw", "reg:logistic")


class TreeParameters(BaseModel):
    """Parameters of trees and of their objective, by XGBoost's own names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    objective: str = "reg:squarederror"
    num_class: Annotated[int, Field(ge=0)] = 0
    base_score: float | None = None  # None: of all labels
    eval_metric: tuple[str, ...] = ()
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    eta: NotNegative = 0.3
    gamma: NotNegative = 0.0
    max_depth: Annotated[int, Field(ge=0)] = 6
    max_leaves: Annotated[int, Field(ge=0)] = 0
    grow_policy: Literal["depthwise", "lossguide"] = "depthwise"
    min_child_weight: NotNegative = 1.0
    max_delta_step: NotNegative | None = None
    subsample: Share = 1.0
    sampling_method: Literal["uniform"] = "uniform"
    colsample_bytree: Share = 1.0
    colsample_bylevel: Share = 1.0
    colsample_bynode: Share = 1.0
    lambda_: Annotated[float, Field(ge=0, alias="lambda")] = 1.0
    alpha: NotNegative = 0.0
    tree_method: Literal["auto", "hist"] = "hist"
    max_bin: Annotated[int, Field(ge=2, le=65535)] = 256
    num_parallel_tree: Annotated[int, Field(ge=1)] = 1
    scale_pos_weight: NotNegative | None = None
    monotone_constraints: Any = None
    interaction_constraints: Any = None
    max_cat_to_onehot: Annotated[int, Field(ge=1)] | None = None
    max_cat_threshold: Annotated[int, Field(ge=1)] | None = None
    tweedie_variance_power: Annotated[float, Field(gt=1, lt=2)] | None = None
    huber_slope: Annotated[float, Field(gt=0)] | None = None
    quantile_alpha: Any = None

    @field_validator("eval_metric", mode="before")
    @classmethod
    def _one_or_many(cls, metric: Any) -> Any:
        return (metric,) if isinstance(metric, str) else metric

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        is_multi = self.objective.startswith("multi:")
        if is_multi and self.num_class < 2:
            raise ValueError(f"num_class: {self.objective} needs the number of classes, at least 2")
        if not is_multi and self.num_class > 1:
            raise ValueError(f"num_class: {self.objective} has no classes; leave it out, or use multi:softprob")
        if self.scale_pos_weight is not None and self.objective not in _OBJECTIVES_OF_TWO_CLASSES:
            raise ValueError(f"scale_pos_weight: {self.objective} has no positive rows; give weights instead")
        if self.grow_policy == "depthwise" and not self.max_depth:
            raise ValueError("max_depth: 0 means no limit, which needs grow_policy=lossguide and max_leaves")
        if not self.max_depth and not self.max_leaves:
            raise ValueError("max_leaves: trees need a limit, either max_depth or max_leaves")
        return self

    @model_validator(mode="after")
    def _constraints_are_written_as_xgboost_reads_them(self) -> Self:
        for name in ("monotone_constraints", "interaction_constraints"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str | list | tuple | dict):
                raise ValueError(f"{name}: expected a list, a mapping by columns or XGBoost's text, received {value!r}")
        return self

    @property
    def samples_columns(self) -> bool:
        """Whether a tree, a level or a node sees only some columns."""
        return min(self.colsample_bytree, self.colsample_bylevel, self.colsample_bynode) < 1

    def to_xgboost(self, threads: int, device: str, *, reproducible: bool = True) -> dict[str, Any]:
        """As XGBoost takes them. Each round has its own seed; reproducible gradients sample the rows themselves."""
        elsewhere = {"eval_metric", "num_class", *(("subsample", "scale_pos_weight") if reproducible else ())}
        values = self.model_dump(by_alias=True, exclude_none=True, exclude=elsewhere)
        if isinstance(self.monotone_constraints, list):
            values["monotone_constraints"] = tuple(self.monotone_constraints)
        if self.num_class:
            values["num_class"] = self.num_class
        return values | {"nthread": threads, "device": device, "seed_per_iteration": True, "tree_method": "hist"}


def parse_parameters(params: Mapping[str, Any]) -> TreeParameters:
    """The parameters that a user gave. Raises SpecError with all problems at once."""
    problems, known = [], {}
    names = {info.alias or name for name, info in TreeParameters.model_fields.items()}
    for given, value in params.items():
        name = _ALIASES.get(given, given)
        if given in _DECIDED_BY_THE_JOB:
            problems.append(f"{given}: {_DECIDED_BY_THE_JOB[given]}")
        elif name not in names:
            problems.append(f"{given}: no parameter of XGBoost's trees{did_you_mean(given, [*names, *_ALIASES])}")
        elif name in known:
            problems.append(f"{given}: given twice, as {name} too")
        else:
            known[name] = value
    parameters = None
    try:
        parameters = TreeParameters.model_validate(known)
    except ValidationError as exc:
        problems += [_describe(error) for error in exc.errors()]
    if problems or parameters is None:
        raise SpecError("\n".join(problems))
    return parameters


def _describe(error: Any) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return message
    value = error["input"]
    shown = "NaN" if isinstance(value, float) and math.isnan(value) else repr(value)
    return f"{error['loc'][0]}: {message[0].lower()}{message[1:]}; received {shown}"
