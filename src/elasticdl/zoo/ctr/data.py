"""Click records: synthetic ones with a known best logloss, or those of Criteo's display advertising challenge.

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

# The number of values of each synthetic field: some few, some many, as in real logs.
FIELD_SIZES = np.array([10 ** (1 + field % 6) for field in range(FIELDS)])
_FACTORS = 4
_CHUNK_RECORDS = 100_000  # records per block


def make_records(numbers: NDArray[np.int64], seed: int = 0) -> tuple[NDArray[np.void], NDArray[np.float64]]:
    """Returns synthetic records of these numbers, and the probabilities of their clicks.

    Sparse ids with a long tail; clicks come from a hidden factorization machine, which is the same for any seed.
    """
    rows = np.empty(len(numbers), RECORD)
    values = [FIELD_SIZES[field] * _uniform(seed, numbers, field) ** 3 for field in range(FIELDS)]
    rows["ids"] = np.stack(values, axis=1).astype(np.int64) + (np.arange(FIELDS, dtype=np.int64) << _FIELD_BITS)
    rows["numbers"] = np.stack([_uniform(seed, numbers, 40 + n) - 0.5 for n in range(NUMBERS)], axis=1)
    effect = _uniform(1, rows["ids"], 0) - 0.5
    factors = np.stack([_uniform(1, rows["ids"], 1 + n) - 0.5 for n in range(_FACTORS)], axis=2)
    pairs = 0.5 * (factors.sum(axis=1) ** 2 - (factors**2).sum(axis=1)).sum(axis=1)
    weights = _uniform(1, np.arange(NUMBERS), 50) - 0.5
    probability = 1.0 / (1.0 + np.exp(1.5 - 1.5 * effect.sum(axis=1) - 0.5 * pairs - rows["numbers"] @ weights))
    rows["label"] = _uniform(seed, numbers, 99) < probability
    return rows, probability


def write_records(path: Path, records: int, seed: int = 0) -> float:
    """Writes a file of synthetic records; returns the best logloss, that of the true probabilities."""
    total = 0.0
    with path.open("wb") as file:
        for start in range(0, records, _CHUNK_RECORDS):
            rows, probability = make_records(np.arange(start, min(start + _CHUNK_RECORDS, records)), seed)
            file.write(rows.tobytes())
            total -= float((probability * np.log(probability) + (1 - probability) * np.log(1 - probability)).sum())
    return total / records


class ClickRecords:
    """A memory-mapped file of records: a source for `custom_data_reader`."""

    columns: tuple[str, ...] = ()
    can_read_ahead = True

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._records = np.memmap(path, RECORD, "r")

    def __len__(self) -> int:
        return len(self._records)

    def read(self, indices: NDArray[np.int64]) -> list[bytes]:
        content = self._records[indices].tobytes()
        return [content[start : start + RECORD.itemsize] for start in range(0, len(content), RECORD.itemsize)]

    def locate(self, index: int) -> str:
        return f"{self.name}, record {index}"

    def close(self) -> None:
        """The mapping ends with the object."""


def read_criteo(path: Path, records: int = 0) -> NDArray[np.void]:
    """Reads a file of the challenge (text or .xz), tab separated: label, I1 … I13, C1 … C26."""
    rows: list[tuple[float, list[float], list[int]]] = []
    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as lines:
        for line in lines:
            rows.append(_parse_line(line))
            if records and len(rows) == records:
                break
    return np.array(rows, RECORD)


def _parse_line(line: str) -> tuple[float, list[float], list[int]]:
    label, *texts = line.rstrip("\n").split("\t")
    numbers = [float(np.log1p(max(float(text or 0), 0.0))) for text in texts[:NUMBERS]]
    ids = [int(text or "0", 16) + (field << _FIELD_BITS) for field, text in enumerate(texts[NUMBERS:])]
    return float(label), numbers, ids


def _uniform(seed: int, numbers: NDArray[np.int64], stream: int) -> NDArray[np.float64]:
    """Returns numbers in [0, 1) that depend only on the arguments (splitmix64)."""
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
