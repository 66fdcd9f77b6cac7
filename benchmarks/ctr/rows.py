"""The rows of a Criteo file, split by time, in the form that the peers use."""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SAMPLE = Path(__file__).parents[3] / "shared" / "data" / "ctr" / "criteo_dac_137k.tsv.xz"
NUMBERS, VALUES = 13, 26
COLUMNS = ("label", *(f"I{n}" for n in range(1, NUMBERS + 1)), *(f"C{n}" for n in range(1, VALUES + 1)))
ABSENT = -1  # stands for a missing value; the values of the file are not negative

Ints = NDArray[np.int64]
Reals = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class CriteoRows:
    labels: Reals
    numbers: NDArray[np.float64]  # [rows, 13]; NaN is missing
    values: Ints  # [rows, 26]; ABSENT is missing
    train: int  # rows of the training part, which are the first …
    valid: int  # … and of the validation part behind it; the test part is the rest
    all: int  # rows of the complete file, of which these may be only the first

    @property
    def labeled(self) -> int:
        """The number of rows whose labels may be used."""
        return self.train + self.valid


def read_rows(path: Path, records: int = 0) -> CriteoRows:
    """Reads the file, or its first records: in its order, 80 % to train, 10 % to choose, and 10 % to test."""
    with lzma.open(path, "rt") as lines:
        fields = [line.rstrip("\n").split("\t") for line in lines]
    total, fields = len(fields), fields[: records or None]
    return CriteoRows(
        np.array([float(row[0]) for row in fields], np.float32),
        np.array([[float(text) if text else np.nan for text in row[1 : 1 + NUMBERS]] for row in fields]),
        np.array([[int(text, 16) if text else ABSENT for text in row[1 + NUMBERS :]] for row in fields]),
        int(len(fields) * 0.8),
        int(len(fields) * 0.9) - int(len(fields) * 0.8),
        total,
    )
