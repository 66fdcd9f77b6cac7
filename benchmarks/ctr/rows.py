"""The rows of a Criteo file, split by time, as peers take them."""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SAMPLE = Path(__file__).parents[3] / "shared" / "data" / "ctr" / "criteo_dac_137k.tsv.xz"
NUMBERS, VALUES = 13, 26
COLUMNS = ("label", *(f"I{n}" for n in range(1, NUMBERS + 1)), *(f"C{n}" for n in range(1, VALUES + 1)))
ABSENT = -1  # of a value, as an integer; none of the file's is negative

Ints = NDArray[np.int64]
Reals = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Raw:
    labels: Reals
    numbers: NDArray[np.float64]  # [rows, 13]; NaN is missing
    values: Ints  # [rows, 26]; ABSENT is missing
    train: int  # rows of the training part, the first …
    valid: int  # … and of the validation part behind it; the test part is the rest
    all: int  # rows of the file, of which these may be the first

    @property
    def known(self) -> int:
        """Rows whose labels may be looked at."""
        return self.train + self.valid


def read(path: Path, records: int = 0) -> Raw:
    """Of the whole file, or of its first records: 80 % to train, 10 % to choose, 10 % to test, in the file's order."""
    with lzma.open(path, "rt") as lines:
        found = [line.rstrip("\n").split("\t") for line in lines]
    total, found = len(found), found[: records or None]
    return Raw(
        np.array([float(row[0]) for row in found], np.float32),
        np.array([[float(text) if text else np.nan for text in row[1 : 1 + NUMBERS]] for row in found]),
        np.array([[int(text, 16) if text else ABSENT for text in row[1 + NUMBERS :]] for row in found]),
        int(len(found) * 0.8),
        int(len(found) * 0.9) - int(len(found) * 0.8),
        total,
    )
