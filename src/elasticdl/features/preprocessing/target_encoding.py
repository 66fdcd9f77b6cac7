"""Target encoding: how often the label is 1 for a value, counted out of fold.

No training row sees its own label.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from elasticdl import atomic
from elasticdl.features.preprocessing.encoders import IndexLookupEncoder, LogSquareEncoder
from elasticdl.features.preprocessing.raw_columns import RawColumns

FOLD_COUNT = 10
PRIOR_ROWS = 5.0  # with the mean, added to those of a value: few rows say little
TARGET_COUNTS_FILE = "rates.npz"

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
CountArray = NDArray[np.float64]


class TargetEncoder(BaseModel):
    """Two numbers: log odds of a click beside the mean's, and how many rows there were. Tables by the value of `of`."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    name: str
    column: str
    of: Annotated[IndexLookupEncoder | LogSquareEncoder, Field(discriminator="how")]
    how: Literal["rates"] = "rates"
    clicked: tuple[float, ...] = ()  # none: no row was counted yet
    seen: tuple[float, ...] = ()
    mean: float = 0.5
    middle: float = 0.0  # of ln(1 + rows), over all rows
    width: float = 1.0

    @property
    def names(self) -> tuple[str, str]:
        return self.name, f"{self.column}.seen"

    def with_counts(self, rows: CountArray, clicks: CountArray, mean: float) -> TargetEncoder:
        """With its tables filled, from the rows and clicks of each value."""
        logs = np.log1p(rows)
        middle = float((logs * rows).sum() / max(rows.sum(), 1.0))
        width = math.sqrt(float((rows * (logs - middle) ** 2).sum() / max(rows.sum(), 1.0))) or 1.0
        empty = self.model_copy(update={"mean": mean, "middle": middle, "width": width})
        clicked, seen = empty.compute_numbers(rows, clicks)
        return empty.model_copy(update={"clicked": tuple(clicked.tolist()), "seen": tuple(seen.tolist())})

    def compute_numbers(self, rows: CountArray, clicks: CountArray) -> tuple[Floats, Floats]:
        chance = (clicks + PRIOR_ROWS * self.mean) / (rows + PRIOR_ROWS)
        odds = np.log(chance / (1 - chance)) - math.log(self.mean / (1 - self.mean))
        return odds.astype(np.float32), ((np.log1p(rows) - self.middle) / self.width).astype(np.float32)

    def encode(self, columns: RawColumns) -> Floats:
        """[rows, 2], of rows that were not counted."""
        return _pairs(self._table, self.of.encode(columns))

    @cached_property
    def _table(self) -> Floats:
        return np.stack([np.array(self.clicked, np.float32), np.array(self.seen, np.float32)], axis=1)


def _pairs(table: Floats, places: Ids) -> Floats:
    """Rows of a table [places, 2]; a pair is taken as one number of eight bytes, in half the time."""
    return table.view(np.int64)[:, 0][places].view(np.float32).reshape(-1, 2)


def assign_folds(ids: Ids) -> Ids:
    """Of each row, by its ids; [rows, fields] to [rows]."""
    factors = (2 * np.arange(ids.shape[1], dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (ids.astype(np.uint64) * factors).sum(axis=1, dtype=np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    found: Ids = ((mixed ^ (mixed >> np.uint64(33))) % np.uint64(FOLD_COUNT)).astype(np.int64)
    return found


class TargetFolds:
    """Rows and clicks by value and fold, of each encoder: what training takes off."""

    def __init__(self, encoders: Iterable[TargetEncoder]) -> None:
        self._encoders = {one.name: one for one in encoders}
        self._rows = {name: np.zeros((one.of.size, FOLD_COUNT)) for name, one in self._encoders.items()}
        self._clicks = {name: np.zeros((one.of.size, FOLD_COUNT)) for name, one in self._encoders.items()}
        self._tables: dict[str, Floats] = {}  # made of both, when they are first asked for

    def add_batch(self, batch: pa.RecordBatch, ids: Ids, labels: Floats) -> None:
        columns, folds = RawColumns(batch), assign_folds(ids)
        for name, one in self._encoders.items():
            cells = one.of.encode(columns) * FOLD_COUNT + folds
            size = one.of.size * FOLD_COUNT
            self._rows[name] += np.bincount(cells, minlength=size).reshape(-1, FOLD_COUNT)
            self._clicks[name] += np.bincount(cells, labels, size).reshape(-1, FOLD_COUNT)

    def fitted_encoders(self, mean: float) -> tuple[TargetEncoder, ...]:
        """Filled with all that was counted."""
        return tuple(
            one.with_counts(self._rows[name].sum(axis=1), self._clicks[name].sum(axis=1), mean)
            for name, one in self._encoders.items()
        )

    def encode(self, one: TargetEncoder, columns: RawColumns, folds: Ids) -> Floats:
        """[rows, 2], of rows that were counted: without those of their own fold."""
        if one.name not in self._tables:  # every answer there is: [value and fold, 2]
            share = FOLD_COUNT / (FOLD_COUNT - 1)
            others = [(table.sum(axis=1, keepdims=True) - table) * share for table in self._of(one.name)]
            self._tables[one.name] = np.stack(one.compute_numbers(*others), axis=2).reshape(-1, 2)
        return _pairs(self._tables[one.name], one.of.encode(columns) * FOLD_COUNT + folds)

    def _of(self, name: str) -> tuple[CountArray, CountArray]:
        return self._rows[name], self._clicks[name]

    def save(self, directory: Path) -> None:
        tables = {f"{name}/rows": table for name, table in self._rows.items()}
        tables |= {f"{name}/clicks": table for name, table in self._clicks.items()}
        with atomic.open_file(directory / TARGET_COUNTS_FILE) as file:
            np.savez(file, allow_pickle=False, **tables)

    @classmethod
    def load(cls, directory: Path, encoders: Iterable[TargetEncoder]) -> TargetFolds:
        made = cls(encoders)
        with np.load(directory / TARGET_COUNTS_FILE, allow_pickle=False) as found:
            for name in made._encoders:
                made._rows[name], made._clicks[name] = found[f"{name}/rows"], found[f"{name}/clicks"]
        return made
