"""Transforms of columns to ragged and sparse ones: ToRagged, ToSparse, Sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from elasticdl.errors import DataError
from elasticdl.features.transforms.array_columns import Ragged, Sparse
from elasticdl.features.transforms.base import Transform, check_bins


@dataclass(frozen=True)
class ToRagged(Transform):
    """Makes a ragged column without the values that are `ignore_value`. Text is split at `sep` first.

    With `ignore_value` None the empty text and, of whole numbers, -1 are left out, but no float. All values of a
    dense row become those of the ragged row.

    >>> ToRagged(sep=",")(["a,b", "", "c"]).to_list()
    [['a', 'b'], [], ['c']]
    >>> ToRagged()([[1, 2], [3, -1]]).to_list()
    [[1, 2], [3]]
    """

    sep: str = ","
    ignore_value: float | str | None = None

    def __post_init__(self) -> None:
        if not self.sep:
            raise ValueError("ToRagged: expected a separator of one character or more. Received: ''")

    def transform_arrays(self, values: Any) -> Ragged:
        from elasticdl.features.transforms import array_columns
        from elasticdl.features.transforms.numpy_ops import NUMPY_OPS

        rows = array_columns.as_ragged(values)
        kind = NUMPY_OPS.kind(rows.values)
        if kind == "text":
            rows = array_columns.split_texts(rows, self.sep)
        ignored = array_columns.resolve_ignore_value(kind, self.ignore_value, owner="ToRagged", floats=None)
        return rows if ignored is None else array_columns.drop_ignored(rows, ignored)


@dataclass(frozen=True)
class ToSparse(Transform):
    """Makes a sparse column without the values that are `ignore_value`. A sparse column is not changed.

    With `ignore_value` None the empty text, -1 of whole numbers, and 0.0 of floats are left out.

    >>> ToSparse()([[1, -1], [-1, 4]])
    Sparse(values=array([1, 4]), indices=array([[0, 0],
           [1, 1]]), shape=(2, 2))
    """

    ignore_value: float | str | None = None

    def transform_arrays(self, values: Any) -> Sparse:
        import pyarrow as pa

        from elasticdl.features.transforms import array_columns
        from elasticdl.features.transforms.numpy_ops import NUMPY_OPS

        column = array_columns.as_column(values)
        if isinstance(column, Sparse):
            return column
        if isinstance(column, Ragged):
            raise DataError("ToSparse: expected a dense column. Received: a ragged one")
        flat, _ = array_columns.flatten_column(column)
        shape = column.shape if isinstance(column, np.ndarray) else (len(column),)
        ignored = array_columns.resolve_ignore_value(
            NUMPY_OPS.kind(flat), self.ignore_value, owner="ToSparse", floats=0.0
        )
        keep = ~array_columns.equals_ignored(flat, ignored)
        indices = np.argwhere(keep.reshape(shape)).astype(np.int64, copy=False)
        return Sparse(flat[keep] if isinstance(flat, np.ndarray) else flat.filter(pa.array(keep)), indices, shape)


@dataclass(frozen=True)
class Sequence(Transform):
    """Splits text at `sep` into at most `max_length` pieces per row: a ragged column of text.

    Empty pieces are left out. Of a longer row the last pieces are kept, which are the latest if the order is that
    of time, or the first with `keep="first"`. `to_padded(max_length)` turns ids made from it into a dense array.

    >>> Sequence(sep="|", max_length=2)(["a|b|c", "", "d"]).to_list()
    [['b', 'c'], [], ['d']]
    >>> Hashing(100)(Sequence(sep="|", max_length=2)(["a|b|c", "", "d"])).to_padded(2)
    array([[22, 72],
           [-1, -1],
           [65, -1]])
    """

    sep: str
    max_length: int
    keep: Literal["first", "last"] = "last"

    def __post_init__(self) -> None:
        if not self.sep:
            raise ValueError("Sequence: expected a separator of one character or more. Received: ''")
        check_bins("Sequence", "max_length", self.max_length)
        if self.keep not in ("first", "last"):
            raise ValueError(f"Sequence: expected keep to be first or last. Received: {self.keep!r}")

    def transform_arrays(self, values: Any) -> Ragged:
        from elasticdl.features.transforms import array_columns
        from elasticdl.features.transforms.numpy_ops import NUMPY_OPS

        rows = array_columns.as_ragged(values)
        if NUMPY_OPS.kind(rows.values) != "text":
            raise DataError("Sequence: expected a column of text. Received: numbers")
        pieces = array_columns.drop_ignored(array_columns.split_texts(rows, self.sep), "")
        return array_columns.truncate_rows(pieces, self.max_length, is_last=self.keep == "last")
