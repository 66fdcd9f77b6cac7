"""Transforms of a column as the user writes them, such as `discretization(quantiles=20)`. Parsed, never evaluated."""

from __future__ import annotations

import ast
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from elasticdl.errors import SpecError

Positive = Annotated[int, Field(ge=1)]
Bins = Annotated[int, Field(ge=2, lt=1 << 40)]
DatePart = Literal["year", "month", "day", "yearday", "weekday", "hour", "minute", "second"]

_EXAMPLE = "expected a transform such as discretization(quantiles=20)"


class TransformSpec(BaseModel):
    """A transform with its options, as written in features.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: ClassVar[str]
    summary: ClassVar[str]
    accepts: ClassVar[str]  # "number", "text", "date" or "any"

    def __str__(self) -> str:
        options = ", ".join(f"{key}={_format_value(getattr(self, key))}" for key in sorted(self.model_fields_set))
        return f"{self.name}({options})"


class NormalizerSpec(TransformSpec):
    name, accepts = "normalizer", "number"
    summary = "a number: minus its mean, by its standard deviation; log=true takes ln(1 + x - minimum) first"
    log: bool = False


class NumberSpec(TransformSpec):
    name, accepts = "number", "number"
    summary = "a number as it is; a missing one is 0"


class ClipSpec(TransformSpec):
    name, accepts = "clip", "number"
    summary = "a number within minimum and maximum, by default its 1 % and 99 % quantiles, from 0 to 1"
    minimum: float | None = None
    maximum: float | None = None


class MissingIndicatorSpec(TransformSpec):
    name, accepts = "missing_indicator", "any"
    summary = "a number: 1 if the value is missing, else 0"


class DiscretizationSpec(TransformSpec):
    name, accepts = "discretization", "number"
    summary = "an id: the range of the number, by quantiles of the data or at the given bins"
    quantiles: Annotated[int, Field(ge=2, le=10_000)] | None = None
    bins: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _check_alternatives(self) -> DiscretizationSpec:
        if self.quantiles is not None and self.bins is not None:
            raise ValueError("quantiles or bins, not both")
        return self


class LogSquareSpec(TransformSpec):
    name, accepts = "log_square", "number"
    summary = "an id: floor(ln(x)²) above 2, the number itself below; for counts with a long tail"


class LogRoundSpec(TransformSpec):
    name, accepts = "log_round", "number"
    summary = "an id: the rounded logarithm"
    num_bins: Bins = 32
    base: Annotated[float, Field(gt=1)] | None = None


class RoundIdentitySpec(TransformSpec):
    name, accepts = "round_identity", "number"
    summary = "an id: the rounded number itself, from 0 to num_buckets - 1"
    num_buckets: Bins


class IndexLookupSpec(TransformSpec):
    name, accepts = "index_lookup", "any"
    summary = "an id: the index in the vocabulary of values that occur min_count times"
    min_count: Positive = 2
    max_size: Positive | None = None
    num_oov_tokens: Positive = 1


class HashingSpec(TransformSpec):
    name, accepts = "hashing", "any"
    summary = "an id: the value's hash, modulo num_bins"
    num_bins: Bins


class SequenceSpec(TransformSpec):
    name, accepts = "sequence", "text"
    summary = "ids of a list in one text, e.g. the last things bought; like=COLUMN shares that column's ids"
    sep: Annotated[str, Field(min_length=1)] = "|"
    max_length: Positive = 50
    num_bins: Bins | None = None
    like: str | None = None

    @model_validator(mode="after")
    def _check_alternatives(self) -> SequenceSpec:
        if (self.num_bins is None) == (self.like is None):
            raise ValueError("either num_bins=N or like=COLUMN")
        return self


class DatePartsSpec(TransformSpec):
    name, accepts = "date_parts", "date"
    summary = "an id for each part of a date"
    parts: Annotated[tuple[DatePart, ...], Field(min_length=1)] = ("hour", "weekday")


class TargetEncodingSpec(TransformSpec):
    name, accepts = "target_encoding", "any"
    summary = "two numbers: how often the label is 1 for this value, counted in other rows only, and in how many rows"
    min_count: Positive = 2


class DropSpec(TransformSpec):
    name, accepts = "drop", "any"
    summary = "nothing"


class CrossSpec(TransformSpec):
    name, accepts = "cross", "any"
    summary = "an id: the values of several columns together, hashed"
    columns: Annotated[tuple[str, ...], Field(min_length=2)]
    num_bins: Bins = 1_000_000

    def __str__(self) -> str:
        names = ", ".join(name if name.isidentifier() else repr(name) for name in self.columns)
        return f"cross({names}, num_bins={self.num_bins})"


TRANSFORM_SPECS: dict[str, type[TransformSpec]] = {
    spec.name: spec
    for spec in (
        NormalizerSpec, NumberSpec, ClipSpec, MissingIndicatorSpec, DiscretizationSpec, LogSquareSpec, LogRoundSpec,
        RoundIdentitySpec, IndexLookupSpec, HashingSpec, SequenceSpec, DatePartsSpec, TargetEncodingSpec, DropSpec,
        CrossSpec,
    )
}  # fmt: skip

_LITERALS = {"true": True, "false": False, "null": None, "none": None}


def parse_transform(text: str) -> TransformSpec:
    """Parses one transform. A SpecError says what is wrong with it and names the nearest known word."""
    name, positional, options = _parse_call(text)
    if name not in TRANSFORM_SPECS:
        near = get_close_matches(name, TRANSFORM_SPECS, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(TRANSFORM_SPECS)}"
        raise SpecError(f"{text!r}: no transform {name!r}{hint}")
    spec_class = TRANSFORM_SPECS[name]
    if positional and spec_class is not CrossSpec:
        raise SpecError(f"{text!r}: options have names, e.g. {_example(spec_class)}")
    if spec_class is CrossSpec:
        options["columns"] = tuple(positional)
    try:
        return spec_class.model_validate(options)
    except ValidationError as exc:
        raise SpecError(f"{text!r}: {_describe_error(exc, spec_class)}") from exc


def _parse_call(text: str) -> tuple[str, list[str], dict[str, Any]]:
    """Splits `name(column, key=literal)` into the name, the columns and the options."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as exc:
        raise SpecError(f"{text!r}: {_EXAMPLE}") from exc
    if isinstance(node, ast.Name):
        return node.id, [], {}
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise SpecError(f"{text!r}: {_EXAMPLE}")
    columns = [
        argument.id if isinstance(argument, ast.Name) else _parse_literal(argument, text) for argument in node.args
    ]
    options: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in options:
            raise SpecError(f"{text!r}: expected each option once, by its name")
        options[keyword.arg] = _parse_literal(keyword.value, text)
    return node.func.id, [str(column) for column in columns], options


def _parse_literal(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Name):
        return _LITERALS.get(node.id.lower(), node.id)  # a bare word is text: like=C1, parts=[hour]
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(_parse_literal(element, text) for element in node.elts)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError) as exc:
        raise SpecError(f"{text!r}: expected numbers, texts and lists, nothing computed") from exc


def _describe_error(exc: ValidationError, spec_class: type[TransformSpec]) -> str:
    first = exc.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        near = get_close_matches(path, spec_class.model_fields, n=1)
        options = ", ".join(spec_class.model_fields) or "none"
        return f"no option {path!r}" + (f"; did you mean {near[0]}?" if near else f"; there are: {options}")
    return f"{path}: {first['msg']}" if path else str(first["msg"]).removeprefix("Value error, ")


def _example(spec_class: type[TransformSpec]) -> str:
    return f"{spec_class.name}({', '.join(f'{name}=…' for name in spec_class.model_fields)})"


def _format_value(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_format_value(item) for item in value) + "]"
    return str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, str) else f"{value}"
