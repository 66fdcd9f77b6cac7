"""The search space as the user writes it, such as `learning_rate: log(1e-4, 1e-2)`. Parsed, never evaluated. Pure."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from elasticdl.ctr import job_description
from elasticdl.ctr.config import CtrConfig, TrainingConfig
from elasticdl.errors import SpecError

EXAMPLES = "log(1e-4, 1e-2), uniform(0, 0.5), integer(1, 4), or a list: [8, 16, 32]"
TRAINING_PARAMETERS = ("learning_rate", "batch_size")  # in `training`
# Other parameters in `training`, with the reason why a search cannot choose them.
EXCLUDED_PARAMETERS = {
    "epochs": "trials end by themselves when the validation metrics stop improving; set training.epochs to limit them",
    "evaluations": "trials are compared evaluation by evaluation, so all have the same",
    "patience": "it decides when a trial ends, not how good it is",
    "seed": "the best seed is luck, and not better on other rows",
    "positive_weight": "it changes the meaning of a probability, and so of the logloss",
}


@dataclass(frozen=True, slots=True)
class RangeDimension:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    is_log: bool = False
    is_integer: bool = False

    @property
    def extremes(self) -> tuple[Any, ...]:
        return (self.low, self.high)

    @property
    def kind(self) -> str:
        return "integer" if self.is_integer else "log" if self.is_log else "uniform"

    def __str__(self) -> str:
        return f"{self.kind}({self.low:g}, {self.high:g})"


@dataclass(frozen=True, slots=True)
class ChoiceDimension:
    """One of several values. Lists are stored as JSON, because only plain values can be stored."""

    values: tuple[Any, ...]

    @property
    def extremes(self) -> tuple[Any, ...]:
        return self.values

    @property
    def stored_values(self) -> list[Any]:
        return [json.dumps(value) if isinstance(value, list | tuple) else value for value in self.values]

    def from_stored(self, stored: Any) -> Any:
        return self.values[self.stored_values.index(stored)]

    def __str__(self) -> str:
        return json.dumps(list(self.values))


Dimension = RangeDimension | ChoiceDimension
Space = dict[str, Dimension]


def parse_space(document: Mapping[str, Any], where: str) -> Space:
    """Parses a search space. A SpecError names the key and what is wrong with it."""
    return {key: _parse_dimension(value, f"{where}.{key}") for key, value in _rejoin_keys(document).items()}


def default_space(config: CtrConfig, params: Sequence[str]) -> Space:
    """Returns the default search space without the parameters that the config sets."""
    searchable = {"learning_rate", *params}
    configured = {key for key in ("learning_rate",) if config.training.learning_rate is not None} | set(config.params)
    return parse_space(
        {key: text for key, text in job_description.DEFAULT_SEARCH_SPACE.items() if key in searchable - configured},
        "defaults",
    )


def check_space(space: Space, config: CtrConfig, params: Sequence[str], where: str) -> None:
    """Raises SpecError for unknown parameters and invalid values. `params` are those of the model."""
    for key, dimension in space.items():
        if key in EXCLUDED_PARAMETERS:
            raise SpecError(f"{where}.{key}: is not searched: {EXCLUDED_PARAMETERS[key]}")
        if key in TRAINING_PARAMETERS:
            _check_training(key, dimension, config.training, f"{where}.{key}")
        elif key not in params:
            available = [*TRAINING_PARAMETERS, *params]
            near = get_close_matches(key, available, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(available)}"
            raise SpecError(f"{where}.{key}: neither {config.model} nor `training` has such a parameter; {hint}")


def apply_values(config: CtrConfig, values: Mapping[str, Any]) -> CtrConfig:
    """Returns the config with these values instead of its own."""
    training = {key: value for key, value in values.items() if key in TRAINING_PARAMETERS}
    params = {key: value for key, value in values.items() if key not in TRAINING_PARAMETERS}
    return config.model_copy(
        update={"training": config.training.model_copy(update=training), "params": {**config.params, **params}}
    )


def _check_training(key: str, dimension: Dimension, training: TrainingConfig, where: str) -> None:
    for value in dimension.extremes:
        if isinstance(dimension, RangeDimension) and key == "batch_size" and not dimension.is_integer:
            raise SpecError(f"{where}: expected integers, e.g. integer(256, 4096) or [512, 1024]")
        try:
            TrainingConfig.model_validate({**training.model_dump(), key: value})
        except ValidationError as exc:
            raise SpecError(f"{where}: {value!r}: {exc.errors()[0]['msg']}") from exc


def _rejoin_keys(document: Mapping[str, Any]) -> dict[str, Any]:
    """Joins what YAML splits at a comma: it reads `{rate: log(1, 2)}` as `rate: log(1` and a key `2)`."""
    joined: dict[str, Any] = {}
    open_key = ""
    for key, value in document.items():
        if open_key and value is None:
            joined[open_key] = f"{joined[open_key]}, {key}"
        else:
            open_key, joined[str(key)] = str(key), value
        text = joined[open_key]
        if not (isinstance(text, str) and text.count("(") > text.count(")")):
            open_key = ""
    return joined


def _parse_dimension(value: Any, where: str) -> Dimension:
    if isinstance(value, list | tuple):
        return _parse_choice(value, where)
    if not isinstance(value, str):
        raise SpecError(f"{where}: {value!r} is not a range; expected {EXAMPLES}")
    try:
        node = ast.parse(value.strip(), mode="eval").body
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords
        word, arguments = node.func.id, [ast.literal_eval(argument) for argument in node.args]
    except (SyntaxError, ValueError, MemoryError, RecursionError, AssertionError) as exc:
        raise SpecError(f"{where}: {value!r} is not a range; expected {EXAMPLES}") from exc
    if word not in ("log", "uniform", "integer"):
        near = get_close_matches(word, ("log", "uniform", "integer"), n=1)
        raise SpecError(f"{where}: no range {word!r}; " + (f"did you mean {near[0]}?" if near else f"use {EXAMPLES}"))
    if len(arguments) != 2 or not all(_is_number(argument) for argument in arguments):
        raise SpecError(f"{where}: {value!r}: expected two numbers, the minimum and the maximum: {word}(MIN, MAX)")
    low, high = arguments
    if word == "integer" and not all(float(argument).is_integer() for argument in arguments):
        raise SpecError(f"{where}: {value!r}: expected integers")
    if not low < high or (word == "log" and low <= 0):
        above = " above 0" if word == "log" else ""
        raise SpecError(f"{where}: {value!r}: expected the minimum{above}, then a larger maximum")
    return RangeDimension(float(low), float(high), is_log=word == "log", is_integer=word == "integer")


def _parse_choice(values: Sequence[Any], where: str) -> ChoiceDimension:
    if not values:
        raise SpecError(f"{where}: an empty list leaves no choice")
    choice = ChoiceDimension(tuple(values))
    for value in values:
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str | int | float | bool | None) for item in items):
            raise SpecError(f"{where}: {value!r}: expected numbers, texts and lists of them")
    if len({json.dumps(value) for value in choice.stored_values}) < len(values):
        raise SpecError(f"{where}: {values!r} has a value twice")
    return choice


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
