"""How often rows with a value were clicked, as numbers: what is known of a value though its embedding knows little.

A row that is trained on is told by the other rows only, or it would be told its own label: rows are dealt into folds
by what is in them, and the counts of a row's own fold are taken off.
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

from elasticdl import replacement
from elasticdl.features.encoders import LogSquareEncoder, VocabularyEncoder
from elasticdl.features.raw import Columns

FOLDS = 10
PRIOR_ROWS = 5.0  # with the mean, added to those of a value: few rows say little
FILE = "rates.npz"

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Counts = NDArray[np.float64]


class RateEncoder(BaseModel):
    """Two numbers: log odds of a click beside the mean's, and how many rows there were. Tables by the value of `of`."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    name: str
    column: str
    of: Annotated[VocabularyEncoder | LogSquareEncoder, Field(discriminator="how")]
    how: Literal["rates"] = "rates"
    clicked: tuple[float, ...] = ()  # none: no row was counted yet
    seen: tuple[float, ...] = ()
    mean: float = 0.5
    middle: float = 0.0  # of ln(1 + rows), over all rows
    width: float = 1.0

    @property
    def names(self) -> tuple[str, str]:
        return self.name, f"{self.column}.seen"

    def counted(self, rows: Counts, clicks: Counts, mean: float) -> RateEncoder:
        """With its tables filled, from the rows and clicks of each value."""
        logs = np.log1p(rows)
        middle = float((logs * rows).sum() / max(rows.sum(), 1.0))
        width = math.sqrt(float((rows * (logs - middle) ** 2).sum() / max(rows.sum(), 1.0))) or 1.0
        empty = self.model_copy(update={"mean": mean, "middle": middle, "width": width})
        clicked, seen = empty.numbers(rows, clicks)
        return empty.model_copy(update={"clicked": tuple(clicked.tolist()), "seen": tuple(seen.tolist())})

    def numbers(self, rows: Counts, clicks: Counts) -> tuple[Floats, Floats]:
        chance = (clicks + PRIOR_ROWS * self.mean) / (rows + PRIOR_ROWS)
        odds = np.log(chance / (1 - chance)) - math.log(self.mean / (1 - self.mean))
        return odds.astype(np.float32), ((np.log1p(rows) - self.middle) / self.width).astype(np.float32)

    def encode(self, columns: Columns) -> Floats:
        """[rows, 2], of rows that were not counted."""
        return _pairs(self._table, self.of.encode(columns))

    @cached_property
    def _table(self) -> Floats:
        return np.stack([np.array(self.clicked, np.float32), np.array(self.seen, np.float32)], axis=1)


def _pairs(table: Floats, places: Ids) -> Floats:
    """Rows of a table [places, 2]; a pair is taken as one number of eight bytes, in half the time."""
    return table.view(np.int64)[:, 0][places].view(np.float32).reshape(-1, 2)


def fold_of(ids: Ids) -> Ids:
    """Of each row, by its ids; [rows, fields] to [rows]."""
    factors = (2 * np.arange(ids.shape[1], dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (ids.astype(np.uint64) * factors).sum(axis=1, dtype=np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    found: Ids = ((mixed ^ (mixed >> np.uint64(33))) % np.uint64(FOLDS)).astype(np.int64)
    return found


class Folds:
    """Rows and clicks by value and fold, of each encoder: what training takes off."""

    def __init__(self, encoders: Iterable[RateEncoder]) -> None:
        self._encoders = {one.name: one for one in encoders}
        self._rows = {name: np.zeros((one.of.size, FOLDS)) for name, one in self._encoders.items()}
        self._clicks = {name: np.zeros((one.of.size, FOLDS)) for name, one in self._encoders.items()}
        self._tables: dict[str, Floats] = {}  # made of both, when they are first asked for

    def count(self, batch: pa.RecordBatch, ids: Ids, labels: Floats) -> None:
        columns, folds = Columns(batch), fold_of(ids)
        for name, one in self._encoders.items():
            cells = one.of.encode(columns) * FOLDS + folds
            size = one.of.size * FOLDS
            self._rows[name] += np.bincount(cells, minlength=size).reshape(-1, FOLDS)
            self._clicks[name] += np.bincount(cells, labels, size).reshape(-1, FOLDS)

    def encoders(self, mean: float) -> tuple[RateEncoder, ...]:
        """Filled with all that was counted."""
        return tuple(
            one.counted(self._rows[name].sum(axis=1), self._clicks[name].sum(axis=1), mean)
            for name, one in self._encoders.items()
        )

    def encode(self, one: RateEncoder, columns: Columns, folds: Ids) -> Floats:
        """[rows, 2], of rows that were counted: without those of their own fold."""
        if one.name not in self._tables:  # every answer there is: [value and fold, 2]
            share = FOLDS / (FOLDS - 1)
            others = [(table.sum(axis=1, keepdims=True) - table) * share for table in self._of(one.name)]
            self._tables[one.name] = np.stack(one.numbers(*others), axis=2).reshape(-1, 2)
        return _pairs(self._tables[one.name], one.of.encode(columns) * FOLDS + folds)

    def _of(self, name: str) -> tuple[Counts, Counts]:
        return self._rows[name], self._clicks[name]

    def save(self, directory: Path) -> None:
        tables = {f"{name}/rows": table for name, table in self._rows.items()}
        tables |= {f"{name}/clicks": table for name, table in self._clicks.items()}
        with replacement.of(directory / FILE) as file:
            np.savez(file, allow_pickle=False, **tables)

    @classmethod
    def load(cls, directory: Path, encoders: Iterable[RateEncoder]) -> Folds:
        made = cls(encoders)
        with np.load(directory / FILE, allow_pickle=False) as found:
            for name in made._encoders:
                made._rows[name], made._clicks[name] = found[f"{name}/rows"], found[f"{name}/clicks"]
        return made
