"""Text to its pieces, and dense columns to ragged ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticdl.features.ragged import Ragged
from elasticdl.features.transforms.transformation import Transformation


@dataclass(frozen=True)
class ToRagged(Transformation):
    """A ragged column without the values that are `ignore_value`. Text is split at `sep` first.

    `ignore_value` None leaves out the empty text, and -1 of whole numbers; no float. All values of a dense row are
    those of the ragged row.

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

    def on_arrays(self, values: Any) -> Ragged:
        from elasticdl.features.transforms import rows
        from elasticdl.features.transforms.arrays import OPS

        found = rows.rows_of(values)
        kind = OPS.kind(found.values)
        if kind == "text":
            found = rows.split(found, self.sep)
        ignored = rows.default_ignored(kind, self.ignore_value, owner="ToRagged", floats=None)
        return found if ignored is None else rows.without(found, ignored)
