"""Synthetic clicks shaped like Criteo's: a label, 13 counts with gaps, 26 categories of 100 to 10 million values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

NUMBERS = [f"I{number}" for number in range(1, 14)]
CATEGORIES = [f"C{number}" for number in range(1, 27)]
_SIZES = [10 ** (2 + number % 6) for number in range(len(CATEGORIES))]
_CHUNK = 100_000


def write(path: Path, rows: int, seed: int = 0) -> None:
    """Writes a CSV file with a header, a chunk at a time."""
    generator = np.random.default_rng(seed)
    with path.open("wb") as file:
        for start in range(0, rows, _CHUNK):
            options = csv.WriteOptions(include_header=start == 0, quoting_style="none")
            csv.write_csv(_chunk(generator, min(_CHUNK, rows - start)), file, options)


def _chunk(generator: np.random.Generator, rows: int) -> pa.Table:
    columns = {"label": pa.array((generator.random(rows) < 0.25).astype(np.int8))}
    for number, name in enumerate(NUMBERS):
        columns[name] = pa.array(generator.geometric(0.01 * (number + 1), rows), mask=generator.random(rows) < 0.1)
    for name, size in zip(CATEGORIES, _SIZES, strict=True):
        # The cube makes some values frequent and most rare, as in clicks.
        values = pa.array((size * generator.random(rows) ** 3).astype(np.int64))
        columns[name] = pc.binary_join_element_wise("v", values.cast(pa.string()), "")
    return pa.table(columns)
