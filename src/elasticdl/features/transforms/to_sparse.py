"""Dense columns to sparse ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from elasticdl.errors import DataError
from elasticdl.features.ragged import Ragged, Sparse
from elasticdl.features.transforms.transformation import Transformation


@dataclass(frozen=True)
class ToSparse(Transformation):
    """A sparse column without the values that are `ignore_value`. A column that is sparse already stays as it is.

    `ignore_value` None leaves out the empty text, -1 of whole numbers, and 0.0 of floats.

    >>> ToSparse()([[1, -1], [-1, 4]])
    Sparse(values=array([1, 4]), places=array([[0, 0],
           [1, 1]]), shape=(2, 2))
    """

    ignore_value: float | str | None = None

    def on_arrays(self, values: Any) -> Sparse:
        import pyarrow as pa

        from elasticdl.features.transforms import columns, rows
        from elasticdl.features.transforms.arrays import OPS

        known = columns.known(values)
        if isinstance(known, Sparse):
            return known
        if isinstance(known, Ragged):
            raise DataError("ToSparse: expected a dense column. Received: a ragged one")
        flat, _ = columns.flatten(known)
        shape = known.shape if isinstance(known, np.ndarray) else (len(known),)
        ignored = rows.default_ignored(OPS.kind(flat), self.ignore_value, owner="ToSparse", floats=0.0)
        keep = ~rows.is_ignored(flat, ignored)
        places = np.argwhere(keep.reshape(shape)).astype(np.int64, copy=False)
        return Sparse(flat[keep] if isinstance(flat, np.ndarray) else flat.filter(pa.array(keep)), places, shape)
