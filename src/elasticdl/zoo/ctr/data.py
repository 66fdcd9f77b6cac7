"""Clicks to learn from: made up, with a known best logloss, or the files of Criteo's display advertising challenge.

    python -m elasticdl.zoo.ctr.data DIRECTORY

A record is fixed bytes: the label, 13 numbers, 26 ids. An id is a value of a field and the field itself, so one table
serves all fields.
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NUMBERS, FIELDS = 13, 26
RECORD = np.dtype([("label", "<f4"), ("numbers", "<f4", NUMBERS), ("ids", "<i8", FIELDS)])
_FIELD_BITS = 48  # an id is the field above these bits and the value below them

# How many values each made-up field has: some few, some many, as in real logs.
FIELD_SIZES = np.array([10 ** (1 + field % 6) for field in range(FIELDS)])
_FACTORS = 4
_CHUNK_RECORDS = 100_000  # records made at a time


def make_records(numbers: NDArray[np.int64], seed: int = 0) -> tuple[NDArray[np.void], NDArray[np.float64]]:
    """Made-up records of these numbers, and the chances their clicks were drawn from.

    Sparse ids with a long tail; clicks come from a hidden factorization machine. It is the same for any seed.
    """
    found = np.empty(len(numbers), RECORD)
    values = [FIELD_SIZES[field] * _uniform(seed, numbers, field) ** 3 for field in range(FIELDS)]
    found["ids"] = np.stack(values, axis=1).astype(np.int64) + (np.arange(FIELDS, dtype=np.int64) << _FIELD_BITS)
    found["numbers"] = np.stack([_uniform(seed, numbers, 40 + n) - 0.5 for n in range(NUMBERS)], axis=1)
    effect = _uniform(1, found["ids"], 0) - 0.5
    factors = np.stack([_uniform(1, found["ids"], 1 + n) - 0.5 for n in range(_FACTORS)], axis=2)
    pairs = 0.5 * (factors.sum(axis=1) ** 2 - (factors**2).sum(axis=1)).sum(axis=1)
    weights = _uniform(1, np.arange(NUMBERS), 50) - 0.5
    chance = 1.0 / (1.0 + np.exp(1.5 - 1.5 * effect.sum(axis=1) - 0.5 * pairs - found["numbers"] @ weights))
    found["label"] = _uniform(seed, numbers, 99) < chance
    return found, chance


def write_records(path: Path, records: int, seed: int = 0) -> float:
    """Write a file of made-up records; returns the best logloss, that of the chances themselves."""
    total = 0.0
    with path.open("wb") as file:
        for start in range(0, records, _CHUNK_RECORDS):
            found, chance = make_records(np.arange(start, min(start + _CHUNK_RECORDS, records)), seed)
            file.write(found.tobytes())
            total -= float((chance * np.log(chance) + (1 - chance) * np.log(1 - chance)).sum())
    return total / records


class ClickRecords:
    """A file of records, mapped: what is not asked for is not in memory. A source as `custom_data_reader` gives it."""

    columns: tuple[str, ...] = ()
    can_read_ahead = True

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._found = np.memmap(path, RECORD, "r")

    def __len__(self) -> int:
        return len(self._found)

    def read(self, indices: NDArray[np.int64]) -> list[bytes]:
        content = self._found[indices].tobytes()
        return [content[at : at + RECORD.itemsize] for at in range(0, len(content), RECORD.itemsize)]

    def locate(self, index: int) -> str:
        return f"{self.name}, record {index}"

    def close(self) -> None:
        """The map goes with the object."""


def read_criteo(path: Path, records: int = 0) -> NDArray[np.void]:
    """The records of a file of the challenge (text, or .xz), tab separated: label, I1 … I13, C1 … C26."""
    found: list[tuple[float, list[float], list[int]]] = []
    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as lines:
        for line in lines:
            found.append(_parse_line(line))
            if records and len(found) == records:
                break
    return np.array(found, RECORD)


def _parse_line(line: str) -> tuple[float, list[float], list[int]]:
    label, *rest = line.rstrip("\n").split("\t")
    numbers = [float(np.log1p(max(float(text or 0), 0.0))) for text in rest[:NUMBERS]]
    ids = [int(text or "0", 16) + (field << _FIELD_BITS) for field, text in enumerate(rest[NUMBERS:])]
    return float(label), numbers, ids


def _uniform(seed: int, numbers: NDArray[np.int64], stream: int) -> NDArray[np.float64]:
    """In [0, 1), a function of its arguments alone (splitmix64)."""
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64((seed * 1_000_003 + stream + 1) * 0xD1B54A32D192ED03 % 2**64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return (x >> np.uint64(11)).astype(np.float64) / 2**53


if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "data")
    directory.mkdir(parents=True, exist_ok=True)
    for seed, name, records in ((1, "train.clicks", 200_000), (2, "test.clicks", 20_000)):
        best = write_records(directory / name, records, seed)
        print(f"{directory / name}: {records:,} records, best logloss {best:.4f}")
