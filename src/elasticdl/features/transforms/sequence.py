"""Text to a sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from elasticdl.errors import DataError
from elasticdl.features.ragged import Ragged
from elasticdl.features.transforms.transformation import Transformation, expect_bins


@dataclass(frozen=True)
class Sequence(Transformation):
    """Text split at `sep`, at most `longest` pieces a row: a ragged column of text.

    Empty pieces are left out. Of a longer row the last pieces are kept, which are the latest where the order is that
    of time, or the first with `keep="first"`. Ids that are made of it become a dense array by `padded(longest)`.

    >>> Sequence(sep="|", longest=2)(["a|b|c", "", "d"]).to_list()
    [['b', 'c'], [], ['d']]
    >>> Hashing(100)(Sequence(sep="|", longest=2)(["a|b|c", "", "d"])).padded(2)
    array([[22, 72],
           [-1, -1],
           [65, -1]])
    """

    sep: str
    longest: int
    keep: Literal["first", "last"] = "last"

    def __post_init__(self) -> None:
        if not self.sep:
            raise ValueError("Sequence: expected a separator of one character or more. Received: ''")
        expect_bins("Sequence", "longest", self.longest)
        if self.keep not in ("first", "last"):
            raise ValueError(f"Sequence: expected keep to be first or last. Received: {self.keep!r}")

    def on_arrays(self, values: Any) -> Ragged:
        from elasticdl.features.transforms import rows
        from elasticdl.features.transforms.arrays import OPS

        found = rows.rows_of(values)
        if OPS.kind(found.values) != "text":
            raise DataError("Sequence: expected a column of text. Received: numbers")
        pieces = rows.without(rows.split(found, self.sep), "")
        return rows.cut(pieces, self.longest, is_last=self.keep == "last")
