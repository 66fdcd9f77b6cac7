"""Builds encoders from transform specs and statistics. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from elasticdl.errors import SpecError
from elasticdl.features import transform_specs as specs
from elasticdl.features.preprocessing import encoders
from elasticdl.features.preprocessing.target_encoding import TargetEncoder
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics
from elasticdl.features.transforms import LogRound

MAX_CATEGORICAL_NUMBERS = 32
"""A column of integers with more distinct values is not taken as categories."""

ColumnEncoder = encoders.FieldEncoder | encoders.AnyNumberEncoder


def build_encoders(
    column: str, spec: specs.TransformSpec, statistics: Statistics, name: str = ""
) -> Iterator[ColumnEncoder]:
    """Yields the encoders of one transform; a date gives one for each part.

    `name` is the name of the output, by default made of the column's and the transform's. Raises SpecError if the
    statistics lack something that the transform needs.
    """
    column_statistics = statistics.column(column)
    name = name or f"{column}.{spec.name}"
    match spec:
        case specs.DropSpec():
            return
        case specs.NormalizerSpec():
            yield _build_normalizer(name, column, spec.log, column_statistics)
        case specs.NumberSpec():
            yield encoders.NumberEncoder(name=name, column=column)
        case specs.ClipSpec():
            yield _build_clip(name, column, spec, column_statistics)
        case specs.MissingIndicatorSpec():
            yield encoders.MissingIndicatorEncoder(name=name, column=column, kind=column_statistics.kind)
        case specs.DiscretizationSpec():
            yield encoders.DiscretizationEncoder(
                name=name, column=column, bins=_choose_bins(column, spec, column_statistics)
            )
        case specs.LogSquareSpec():
            yield encoders.LogSquareEncoder(name=name, column=column)
        case specs.LogRoundSpec():
            edges = tuple(LogRound(spec.num_bins, 0, spec.base).tables["edges"].tolist())
            yield encoders.LogRoundEncoder(
                name=name, column=column, num_bins=spec.num_bins, base=spec.base, edges=edges
            )
        case specs.RoundIdentitySpec():
            yield encoders.RoundIdentityEncoder(name=name, column=column, num_buckets=spec.num_buckets)
        case specs.IndexLookupSpec():
            yield _build_index_lookup(name, column, spec, column_statistics)
        case specs.HashingSpec():
            yield encoders.HashingEncoder(name=name, column=column, kind=column_statistics.kind, num_bins=spec.num_bins)
        case specs.DatePartsSpec():
            if column_statistics.kind is ColumnKind.NUMBER:
                raise SpecError(f"column {column!r}: {spec} takes dates, and this column has numbers")
            for part in spec.parts:
                yield encoders.DatePartEncoder(name=f"{column}.{part}", column=column, part=part)
        case _:
            raise AssertionError(f"no encoder for the transform {spec}")


def build_target_encoder(column: str, spec: specs.TargetEncodingSpec, statistics: Statistics) -> TargetEncoder:
    """Encodes by the values of the vocabulary; numbers with fractions or many values by their logarithm."""
    column_statistics, name = statistics.column(column), f"{column}.{spec.name}"
    if column_statistics.kind is ColumnKind.NUMBER and (
        not column_statistics.is_integer
        or column_statistics.is_truncated
        or column_statistics.distinct > MAX_CATEGORICAL_NUMBERS
    ):
        return TargetEncoder(name=name, column=column, encoder=encoders.LogSquareEncoder(name=name, column=column))
    counts = zip(column_statistics.values, column_statistics.counts, strict=True)
    vocabulary = tuple(value for value, count in counts if count >= spec.min_count)
    lookup = encoders.IndexLookupEncoder(name=name, column=column, kind=column_statistics.kind, vocabulary=vocabulary)
    return TargetEncoder(name=name, column=column, encoder=lookup)


def build_cross_encoder(spec: specs.CrossSpec, statistics: Statistics) -> encoders.CrossEncoder:
    kinds = tuple(statistics.column(name).kind for name in spec.columns)
    name = "*".join(spec.columns)
    return encoders.CrossEncoder(name=name, columns=spec.columns, kinds=kinds, num_bins=spec.num_bins)


def build_sequence_encoder(
    column: str, spec: specs.SequenceSpec, fields: tuple[encoders.FieldEncoder, ...]
) -> encoders.SequenceEncoder:
    """Builds the encoder of a sequence. Its ids are its own, or those of the field named by `like`."""
    name = f"{column}.sequence"
    if spec.like is None:
        hashing = encoders.HashingEncoder(name=name, column=column, num_bins=spec.num_bins or 0)
        return encoders.SequenceEncoder(
            name=name, column=column, sep=spec.sep, max_length=spec.max_length, like="", encoder=hashing
        )
    for field in fields:
        if isinstance(field, encoders.IndexLookupEncoder | encoders.HashingEncoder) and field.column == spec.like:
            return encoders.SequenceEncoder(
                name=name, column=column, sep=spec.sep, max_length=spec.max_length, like=field.name, encoder=field
            )
    raise SpecError(f"column {column!r}: {spec}: {spec.like} has no ids; give it hashing(num_bins=…) or index_lookup()")


def _build_normalizer(
    name: str, column: str, is_log: bool, column_statistics: ColumnStatistics
) -> encoders.NumberEncoder:
    if (
        column_statistics.mean is None
        or column_statistics.standard_deviation is None
        or column_statistics.minimum is None
    ):
        return encoders.NumberEncoder(name=name, column=column)  # every value is missing: always 0
    if not is_log:
        return encoders.NumberEncoder(
            name=name,
            column=column,
            subtractor=column_statistics.mean,
            divisor=column_statistics.standard_deviation or 1.0,
        )
    # There are no statistics of the logarithm; the logarithms of the quantiles serve instead.
    logs = np.log1p(
        np.array(column_statistics.quantiles or (column_statistics.minimum, column_statistics.maximum), np.float64)
        - column_statistics.minimum
    )
    middle = (logs[1:] + logs[:-1]) / 2 if len(logs) > 1 else logs
    return encoders.NumberEncoder(
        name=name,
        column=column,
        log=True,
        shift=column_statistics.minimum,
        subtractor=float(middle.mean()),
        divisor=float(middle.std()) or 1.0,
    )


def _build_clip(
    name: str, column: str, spec: specs.ClipSpec, column_statistics: ColumnStatistics
) -> encoders.NumberEncoder:
    def choose_limit(limit: float | None, share: float, fallback: float | None) -> float:
        if limit is not None:
            return limit
        if column_statistics.quantiles:
            return column_statistics.quantiles[round(share * (len(column_statistics.quantiles) - 1))]
        return fallback or 0.0

    low, high = (
        choose_limit(spec.minimum, 0.01, column_statistics.minimum),
        choose_limit(spec.maximum, 0.99, column_statistics.maximum),
    )
    if low > high:
        raise SpecError(f"column {column!r}: {spec}: its minimum {low:g} is above its maximum {high:g}")
    return encoders.NumberEncoder(
        name=name, column=column, minimum=low, maximum=high, subtractor=low, divisor=high - low or 1.0
    )


def _choose_bins(column: str, spec: specs.DiscretizationSpec, column_statistics: ColumnStatistics) -> tuple[float, ...]:
    if spec.bins is not None:
        bins = spec.bins
    else:
        if not column_statistics.quantiles:
            raise SpecError(f"column {column!r}: {spec} needs quantiles, and every value is missing; drop the column")
        shares = np.linspace(0.0, 1.0, (spec.quantiles or 20) + 1)[1:-1]
        steps = np.linspace(0.0, 1.0, len(column_statistics.quantiles))
        bins = tuple(float(edge) for edge in np.interp(shares, steps, column_statistics.quantiles))
    if not all(math.isfinite(edge) for edge in bins):
        raise SpecError(f"column {column!r}: {spec}: expected finite bins")
    return tuple(sorted(set(bins)))


def _build_index_lookup(
    name: str, column: str, spec: specs.IndexLookupSpec, column_statistics: ColumnStatistics
) -> encoders.IndexLookupEncoder:
    if spec.min_count < column_statistics.min_count:
        raise SpecError(
            f"column {column!r}: {spec}: its statistics have values of {column_statistics.min_count} rows and more; "
            f"analyze again with --min-count {spec.min_count}"
        )
    values = [
        value
        for value, count in zip(column_statistics.values, column_statistics.counts, strict=True)
        if count >= spec.min_count
    ]
    if (
        column_statistics.is_truncated
        and spec.max_size is None
        and column_statistics.counts
        and column_statistics.counts[-1] >= spec.min_count
    ):
        raise SpecError(
            f"column {column!r}: {spec}: the vocabulary was truncated to {len(column_statistics.values):,} values; "
            f"use hashing(num_bins=…), a larger min_count, or index_lookup(max_size={len(column_statistics.values)})"
        )
    return encoders.IndexLookupEncoder(
        name=name,
        column=column,
        kind=column_statistics.kind,
        vocabulary=tuple(values[: spec.max_size]),
        num_oov_tokens=spec.num_oov_tokens,
    )
