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
PRIOR_ROWS = 5.0
"""This many rows with the mean are added to those of a value, because few rows say little."""

TARGET_COUNTS_FILE = "target_counts.npz"

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
CountArray = NDArray[np.float64]


class TargetEncoder(BaseModel):
    """Gives two numbers: the log odds of a 1 relative to the mean's, and how many rows have the value.

    Both are tables, indexed by the id that `encoder` gives the value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    name: str
    column: str
    encoder: Annotated[IndexLookupEncoder | LogSquareEncoder, Field(discriminator="transform")]
    transform: Literal["target_encoding"] = "target_encoding"
    log_odds: tuple[float, ...] = ()  # empty: no row was counted yet
    frequencies: tuple[float, ...] = ()
    mean: float = 0.5
    frequency_mean: float = 0.0  # of ln(1 + rows), over all rows
    frequency_deviation: float = 1.0

    @property
    def names(self) -> tuple[str, str]:
        return self.name, f"{self.column}.target_frequency"

    def with_counts(self, rows: CountArray, positives: CountArray, mean: float) -> TargetEncoder:
        """Returns a copy whose tables are filled from the rows and the positive labels of each value."""
        logs = np.log1p(rows)
        center = float((logs * rows).sum() / max(rows.sum(), 1.0))
        deviation = math.sqrt(float((rows * (logs - center) ** 2).sum() / max(rows.sum(), 1.0))) or 1.0
        empty = self.model_copy(update={"mean": mean, "frequency_mean": center, "frequency_deviation": deviation})
        log_odds, frequencies = empty.compute_numbers(rows, positives)
        return empty.model_copy(
            update={"log_odds": tuple(log_odds.tolist()), "frequencies": tuple(frequencies.tolist())}
        )

    def compute_numbers(self, rows: CountArray, positives: CountArray) -> tuple[Floats, Floats]:
        probability = (positives + PRIOR_ROWS * self.mean) / (rows + PRIOR_ROWS)
        log_odds = np.log(probability / (1 - probability)) - math.log(self.mean / (1 - self.mean))
        frequencies = (np.log1p(rows) - self.frequency_mean) / self.frequency_deviation
        return log_odds.astype(np.float32), frequencies.astype(np.float32)

    def encode(self, columns: RawColumns) -> Floats:
        """Returns [rows, 2] for rows that were not counted."""
        return _take_pairs(self._table, self.encoder.encode(columns))

    @cached_property
    def _table(self) -> Floats:
        return np.stack([np.array(self.log_odds, np.float32), np.array(self.frequencies, np.float32)], axis=1)


def _take_pairs(table: Floats, indices: Ids) -> Floats:
    """Takes rows of a table [values, 2]. A pair is read as one number of eight bytes, in half the time."""
    return table.view(np.int64)[:, 0][indices].view(np.float32).reshape(-1, 2)


def assign_folds(ids: Ids) -> Ids:
    """Returns the fold of each row, a hash of its ids: [rows, fields] to [rows]."""
    factors = (2 * np.arange(ids.shape[1], dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (ids.astype(np.uint64) * factors).sum(axis=1, dtype=np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    folds: Ids = ((mixed ^ (mixed >> np.uint64(33))) % np.uint64(FOLD_COUNT)).astype(np.int64)
    return folds


class TargetFolds:
    """Counts rows and positive labels by value and fold, for each encoder; training leaves out a row's own fold."""

    def __init__(self, encoders: Iterable[TargetEncoder]) -> None:
        self._encoders = {encoder.name: encoder for encoder in encoders}
        self._rows = {name: np.zeros((encoder.encoder.size, FOLD_COUNT)) for name, encoder in self._encoders.items()}
        self._positives = {name: np.zeros_like(counts) for name, counts in self._rows.items()}
        self._tables: dict[str, Floats] = {}  # computed from both when they are first needed

    def add_batch(self, batch: pa.RecordBatch, ids: Ids, labels: Floats) -> None:
        columns, folds = RawColumns(batch), assign_folds(ids)
        for name, encoder in self._encoders.items():
            cells = encoder.encoder.encode(columns) * FOLD_COUNT + folds
            size = encoder.encoder.size * FOLD_COUNT
            self._rows[name] += np.bincount(cells, minlength=size).reshape(-1, FOLD_COUNT)
            self._positives[name] += np.bincount(cells, labels, size).reshape(-1, FOLD_COUNT)

    def fitted_encoders(self, mean: float) -> tuple[TargetEncoder, ...]:
        """Returns the encoders, filled with all rows that were counted."""
        return tuple(
            encoder.with_counts(self._rows[name].sum(axis=1), self._positives[name].sum(axis=1), mean)
            for name, encoder in self._encoders.items()
        )

    def encode(self, encoder: TargetEncoder, columns: RawColumns, folds: Ids) -> Floats:
        """Returns [rows, 2] for rows that were counted, computed without the rows of their own fold."""
        name = encoder.name
        if name not in self._tables:  # the numbers of every value and fold: [values * folds, 2]
            scale = FOLD_COUNT / (FOLD_COUNT - 1)
            counts = (self._rows[name], self._positives[name])
            others = [(table.sum(axis=1, keepdims=True) - table) * scale for table in counts]
            self._tables[name] = np.stack(encoder.compute_numbers(*others), axis=2).reshape(-1, 2)
        return _take_pairs(self._tables[name], encoder.encoder.encode(columns) * FOLD_COUNT + folds)

    def save(self, directory: Path) -> None:
        tables = {f"{name}/rows": table for name, table in self._rows.items()}
        tables |= {f"{name}/positives": table for name, table in self._positives.items()}
        with atomic.open_file(directory / TARGET_COUNTS_FILE) as file:
            np.savez(file, allow_pickle=False, **tables)

    @classmethod
    def load(cls, directory: Path, encoders: Iterable[TargetEncoder]) -> TargetFolds:
        folds = cls(encoders)
        with np.load(directory / TARGET_COUNTS_FILE, allow_pickle=False) as tables:
            for name in folds._encoders:
                folds._rows[name], folds._positives[name] = tables[f"{name}/rows"], tables[f"{name}/positives"]
        return folds
