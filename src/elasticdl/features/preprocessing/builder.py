"""Builds encoders from transform specs and statistics. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from elasticdl.errors import SpecError
from elasticdl.features import transform_specs as asked
from elasticdl.features.preprocessing import encoders as made
from elasticdl.features.preprocessing.target_encoding import TargetEncoder
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics
from elasticdl.features.transforms import LogRound

MAX_CATEGORICAL_NUMBERS = 32
"""Whole numbers with more distinct values are no categories."""

ColumnEncoder = made.FieldEncoder | made.AnyNumberEncoder


def build_encoders(
    column: str, treatment: asked.TransformSpec, statistics: Statistics, name: str = ""
) -> Iterator[ColumnEncoder]:
    """`name` is that of the output, by default the column's and the treatment's. A date gives one for each part.

    SpecError where the statistics do not have what it needs.
    """
    known = statistics.column(column)
    name = name or f"{column}.{treatment.name}"
    match treatment:
        case asked.DropSpec():
            return
        case asked.NormalizerSpec():
            yield _build_normalizer(name, column, treatment.log, known)
        case asked.NumberSpec():
            yield made.NumberEncoder(name=name, column=column)
        case asked.ClipSpec():
            yield _build_clip(name, column, treatment, known)
        case asked.MissingIndicatorSpec():
            yield made.MissingIndicatorEncoder(name=name, column=column, kind=known.kind)
        case asked.DiscretizationSpec():
            yield made.DiscretizationEncoder(name=name, column=column, bounds=_choose_bounds(column, treatment, known))
        case asked.LogSquareSpec():
            yield made.LogSquareEncoder(name=name, column=column)
        case asked.LogRoundSpec():
            edges = tuple(LogRound(treatment.bins, 0, treatment.base).tables["edges"].tolist())
            yield made.LogRoundEncoder(name=name, column=column, bins=treatment.bins, base=treatment.base, edges=edges)
        case asked.RoundIdentitySpec():
            yield made.RoundIdentityEncoder(name=name, column=column, bins=treatment.bins)
        case asked.IndexLookupSpec():
            yield _build_index_lookup(name, column, treatment, known)
        case asked.HashingSpec():
            yield made.HashingEncoder(name=name, column=column, kind=known.kind, bins=treatment.bins)
        case asked.DatePartsSpec():
            if known.kind is ColumnKind.NUMBER:
                raise SpecError(f"column {column!r}: {treatment} takes dates, and this column has numbers")
            for part in treatment.parts:
                yield made.DatePartEncoder(name=f"{column}.{part}", column=column, part=part)
        case _:
            raise AssertionError(f"a treatment that nobody binds: {treatment}")


def build_target_encoder(column: str, treatment: asked.TargetEncodingSpec, statistics: Statistics) -> TargetEncoder:
    """By the values of its vocabulary; of numbers that are not whole, or too many, by their logarithm."""
    known, name = statistics.column(column), f"{column}.{treatment.name}"
    if known.kind is ColumnKind.NUMBER and (
        not known.is_whole or known.is_cut or known.distinct > MAX_CATEGORICAL_NUMBERS
    ):
        return TargetEncoder(name=name, column=column, of=made.LogSquareEncoder(name=name, column=column))
    counted = zip(known.values, known.counts, strict=True)
    values = tuple(value for value, count in counted if count >= treatment.min_count)
    of = made.IndexLookupEncoder(name=name, column=column, kind=known.kind, values=values)
    return TargetEncoder(name=name, column=column, of=of)


def build_cross_encoder(treatment: asked.CrossSpec, statistics: Statistics) -> made.CrossEncoder:
    kinds = tuple(statistics.column(name).kind for name in treatment.columns)
    name = "*".join(treatment.columns)
    return made.CrossEncoder(name=name, columns=treatment.columns, kinds=kinds, bins=treatment.bins)


def build_sequence_encoder(
    column: str, treatment: asked.SequenceSpec, fields: tuple[made.FieldEncoder, ...]
) -> made.SequenceEncoder:
    """Its ids are those of the field it is `like`, or its own."""
    name = f"{column}.sequence"
    common = {"name": name, "column": column, "sep": treatment.sep, "longest": treatment.longest}
    if treatment.like is None:
        of = made.HashingEncoder(name=name, column=column, bins=treatment.bins or 0)
        return made.SequenceEncoder(**common, like="", of=of)  # type: ignore[arg-type]
    for field in fields:
        is_alike = isinstance(field, made.IndexLookupEncoder | made.HashingEncoder) and field.column == treatment.like
        if is_alike and isinstance(field, made.IndexLookupEncoder | made.HashingEncoder):
            return made.SequenceEncoder(**common, like=field.name, of=field)  # type: ignore[arg-type]
    raise SpecError(f"column {column!r}: {treatment}: {treatment.like} has no ids; give it hash(bins=…) or lookup()")


def _build_normalizer(name: str, column: str, is_log: bool, known: ColumnStatistics) -> made.NumberEncoder:
    if known.mean is None or known.deviation is None or known.minimum is None:
        return made.NumberEncoder(name=name, column=column)  # all missing: 0 for ever
    if not is_log:
        return made.NumberEncoder(name=name, column=column, subtract=known.mean, divide=known.deviation or 1.0)
    # Of the logarithm there are no statistics; those of its quantiles' logarithms do.
    logs = np.log1p(np.array(known.quantiles or (known.minimum, known.maximum), np.float64) - known.minimum)
    middle = (logs[1:] + logs[:-1]) / 2 if len(logs) > 1 else logs
    deviation = float(middle.std()) or 1.0
    return made.NumberEncoder(
        name=name, column=column, log=True, shift=known.minimum, subtract=float(middle.mean()), divide=deviation
    )


def _build_clip(name: str, column: str, treatment: asked.ClipSpec, known: ColumnStatistics) -> made.NumberEncoder:
    def chosen(given: float | None, share: float, otherwise: float | None) -> float:
        if given is not None:
            return given
        if known.quantiles:
            return known.quantiles[round(share * (len(known.quantiles) - 1))]
        return otherwise or 0.0

    low, high = chosen(treatment.minimum, 0.01, known.minimum), chosen(treatment.maximum, 0.99, known.maximum)
    if low > high:
        raise SpecError(f"column {column!r}: {treatment}: its minimum {low:g} is above its maximum {high:g}")
    return made.NumberEncoder(name=name, column=column, low=low, high=high, subtract=low, divide=high - low or 1.0)


def _choose_bounds(column: str, treatment: asked.DiscretizationSpec, known: ColumnStatistics) -> tuple[float, ...]:
    if treatment.bounds is not None:
        bounds = treatment.bounds
    else:
        if not known.quantiles:
            raise SpecError(f"column {column!r}: {treatment} needs quantiles, and all of it is missing; drop it")
        shares = np.linspace(0.0, 1.0, (treatment.quantiles or 20) + 1)[1:-1]
        places = np.linspace(0.0, 1.0, len(known.quantiles))
        bounds = tuple(float(one) for one in np.interp(shares, places, known.quantiles))
    if not all(math.isfinite(one) for one in bounds):
        raise SpecError(f"column {column!r}: {treatment}: expected finite bounds")
    return tuple(sorted(set(bounds)))


def _build_index_lookup(
    name: str, column: str, treatment: asked.IndexLookupSpec, known: ColumnStatistics
) -> made.IndexLookupEncoder:
    if treatment.min_count < known.least_count:
        raise SpecError(
            f"column {column!r}: {treatment}: its statistics have values of {known.least_count} rows and more; "
            f"analyze again with --min-count {treatment.min_count}"
        )
    values = [value for value, count in zip(known.values, known.counts, strict=True) if count >= treatment.min_count]
    if known.is_cut and treatment.most is None and known.counts and known.counts[-1] >= treatment.min_count:
        raise SpecError(
            f"column {column!r}: {treatment}: the vocabulary was cut at {len(known.values):,} values; "
            f"use hash(bins=…), a larger min_count, or lookup(most={len(known.values)})"
        )
    return made.IndexLookupEncoder(
        name=name,
        column=column,
        kind=known.kind,
        values=tuple(values[: treatment.most]),
        unknown=treatment.unknown,
    )
