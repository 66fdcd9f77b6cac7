"""Rows that have several values each: split, left out, cut; in NumPy and Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import DataError
from elasticdl.features.ragged import Ragged, Sparse
from elasticdl.features.transforms import columns
from elasticdl.features.transforms.arrays import OPS, decoded


def rows_of(values: Any) -> Ragged:
    """Any column as ragged: what a row of a dense one has is all in one row."""
    known = columns.known(values)
    flat, _ = columns.flatten(known)
    if isinstance(known, Ragged):
        return Ragged(flat, np.asarray(known.splits))
    if isinstance(known, Sparse):
        counts = np.bincount(np.asarray(known.places)[:, 0], minlength=known.shape[0])
        return Ragged(flat, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    shape = known.shape if isinstance(known, np.ndarray) else (len(known),)
    if not shape:
        raise DataError("expected a column of rows. Received: a single value")
    size = int(np.prod(shape[1:], dtype=np.int64))
    return Ragged(flat, np.arange(shape[0] + 1, dtype=np.int64) * size)


def split(rows: Ragged, separator: str) -> Ragged:
    """Every text in its pieces; a null has none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = decoded(rows.values)
    try:
        texts = texts.cast(pa.string()).fill_null("")
    except pa.ArrowInvalid as exc:
        raise DataError(f"expected text in UTF-8: {exc}") from exc
    pieces = pc.split_pattern(texts, separator)
    lengths = pieces.value_lengths().to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return Ragged(pieces.flatten(), ends[rows.splits])


def without(rows: Ragged, ignored: Any) -> Ragged:
    """The values that are not `ignored`."""
    return kept(rows, ~is_ignored(rows.values, ignored))


def is_ignored(values: Any, ignored: Any) -> Any:
    if OPS.kind(values) == "text":
        return OPS.is_text(values, ignored)
    return values == np.asarray(ignored).astype(values.dtype)


def kept(rows: Ragged, keep: NDArray[np.bool_]) -> Ragged:
    import pyarrow as pa

    ends = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])
    is_array = isinstance(rows.values, np.ndarray)
    return Ragged(rows.values[keep] if is_array else rows.values.filter(pa.array(keep)), ends[rows.splits])


def cut(rows: Ragged, longest: int, *, is_last: bool) -> Ragged:
    """At most `longest` values of each row: its last or its first ones."""
    lengths = np.diff(rows.splits)
    place = np.arange(len(rows.values)) - np.repeat(rows.splits[:-1], lengths)
    return kept(rows, place >= np.repeat(lengths, lengths) - longest if is_last else place < longest)


def default_ignored(kind: str, given: Any, *, owner: str, floats: float | None) -> Any:
    """What is left out where nothing is said: "" of text, -1 of whole numbers. DataError for one of another kind."""
    if given is None:
        return "" if kind == "text" else -1 if kind == "whole" else floats
    is_wrong = isinstance(given, str) != (kind == "text")
    if is_wrong or (kind == "whole" and int(given) != given):
        raise DataError(f"{owner}: expected an ignore_value that is {kind} as the column is. Received: {given!r}")
    return given
