"""The rows of a Criteo file, split by time, and the treatments of ours in NumPy.

To be replaced by a front of `elasticdl.features` as soon as it has these treatments: `fielded` is log_square and
vocabularies with a least count, `scaled` is log and standardisation, `told` is the target statistics of a value.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.features.layout import FIELD_BITS, FIRST, MISSING, UNKNOWN, Field, Layout

NUMBERS, VALUES = 13, 26
ABSENT = -1  # of a value, as an integer; none of the file's is negative
LEAST = 10  # rows of the training part that have a value, or it is out of the vocabulary
FOLDS, PRIOR_ROWS = 10, 5.0

Ints = NDArray[np.int64]
Reals = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Raw:
    labels: Reals
    numbers: NDArray[np.float64]  # [rows, 13]; NaN is missing
    values: Ints  # [rows, 26]; ABSENT is missing
    train: int  # rows of the training part, the first …
    valid: int  # … and of the validation part behind it; the test part is the rest

    def cut(self) -> Raw:
        """Without the test part."""
        end = self.train + self.valid
        return Raw(self.labels[:end], self.numbers[:end], self.values[:end], self.train, self.valid)


def read(path: Path, records: int = 0) -> Raw:
    """Of the whole file, or of its first records: 80 % to train, 10 % to choose, 10 % to test, in the file's order."""
    with lzma.open(path, "rt") as lines:
        found = [line.rstrip("\n").split("\t") for line in lines]
    found = found[: records or None]
    return Raw(
        np.array([float(row[0]) for row in found], np.float32),
        np.array([[float(text) if text else np.nan for text in row[1 : 1 + NUMBERS]] for row in found]),
        np.array([[int(text, 16) if text else ABSENT for text in row[1 + NUMBERS :]] for row in found]),
        int(len(found) * 0.8),
        int(len(found) * 0.9) - int(len(found) * 0.8),
    )


def treated(raw: Raw) -> tuple[Layout, Ints, Reals]:
    """The layout, its ids and its numbers. Statistics come from the training part alone."""
    columns = [*(log_square(column) for column in raw.numbers.T), *raw.values.T]
    names = [*(f"I{n + 1}" for n in range(NUMBERS)), *(f"C{n + 1}" for n in range(VALUES))]
    ids, fields = [], []
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        values, size = fielded(column, raw.train)
        ids.append(values + (number << FIELD_BITS))
        fields.append(Field(name=name, size=size))
    numbers = [scaled(np.log1p(np.maximum(np.nan_to_num(raw.numbers), 0.0)), raw.train)]
    numbers += [told(column, raw.labels, raw.train) for column in columns]
    told_names = [f"{name} {what}" for name in names for what in ("clicked", "seen")]
    layout = Layout(fields=tuple(fields), numbers=(*(f"log {name}" for name in names[:NUMBERS]), *told_names))
    return layout, np.stack(ids, axis=1), np.concatenate(numbers, axis=1).astype(np.float32)


def log_square(column: NDArray[np.float64]) -> Ints:
    """floor(ln(x)²) above 2, the number itself below; no two of both are the same."""
    large = np.floor(np.log(np.maximum(column, 3.0)) ** 2) + 10
    return np.where(np.isnan(column), ABSENT, np.where(column > 2, large, column + 4)).astype(np.int64)


def fielded(column: Ints, train: int, least: int = LEAST) -> tuple[Ints, int]:
    """The values of a field, and how many there are."""
    seen, counts = np.unique(column[:train], return_counts=True)
    kept = seen[(counts >= least) & (seen != ABSENT)]
    if not len(kept):
        return np.where(column == ABSENT, MISSING, UNKNOWN), FIRST
    place = np.minimum(np.searchsorted(kept, column), len(kept) - 1)
    known = np.where(kept[place] == column, place + FIRST, UNKNOWN)
    return np.where(column == ABSENT, MISSING, known), len(kept) + FIRST


def scaled(columns: NDArray[np.float64], train: int) -> NDArray[np.float64]:
    """With mean 0 and deviation 1 in the training part."""
    deviation = columns[:train].std(axis=0)
    found: NDArray[np.float64] = (columns - columns[:train].mean(axis=0)) / np.where(deviation == 0, 1.0, deviation)
    return found


def told(column: Ints, labels: Reals, train: int) -> NDArray[np.float64]:
    """How often rows of a value were clicked, as log odds beside the mean, and how many there were: [rows, 2].

    A row of the training part is told by the nine other tenths of it, and so never by itself. Few rows say little:
    `PRIOR_ROWS` rows with the mean are added.
    """
    _, numbered = np.unique(column, return_inverse=True)
    kinds = int(numbered.max()) + 1
    fold = np.random.default_rng(1).integers(0, FOLDS, train)
    cell = numbered[:train] * FOLDS + fold
    seen = np.bincount(cell, minlength=kinds * FOLDS).reshape(kinds, FOLDS).astype(np.float64)
    clicked = np.bincount(cell, labels[:train], kinds * FOLDS).reshape(kinds, FOLDS)
    rows, clicks = seen.sum(axis=1)[numbered], clicked.sum(axis=1)[numbered]
    share = FOLDS / (FOLDS - 1)
    rows[:train] = (rows[:train] - seen[numbered[:train], fold]) * share
    clicks[:train] = (clicks[:train] - clicked[numbered[:train], fold]) * share
    mean = float(labels[:train].mean())
    rate = (clicks + PRIOR_ROWS * mean) / (rows + PRIOR_ROWS)
    odds = np.log(rate / (1 - rate)) - np.log(mean / (1 - mean))
    return np.stack([odds, scaled(np.log1p(rows)[:, None], train)[:, 0]], axis=1)
