"""Made-up clicks shaped like Criteo's: a label, 13 counts with gaps, 26 categories of 100 to 10 million values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

NUMBERS = [f"I{place}" for place in range(1, 14)]
CATEGORIES = [f"C{place}" for place in range(1, 27)]
_SIZES = [10 ** (2 + place % 6) for place in range(len(CATEGORIES))]
_CHUNK = 100_000


def write(path: Path, rows: int, seed: int = 0) -> None:
    """A CSV file with a header, a chunk at a time."""
    draw = np.random.default_rng(seed)
    with path.open("wb") as file:
        for start in range(0, rows, _CHUNK):
            options = csv.WriteOptions(include_header=start == 0, quoting_style="none")
            csv.write_csv(_chunk(draw, min(_CHUNK, rows - start)), file, options)


def _chunk(draw: np.random.Generator, rows: int) -> pa.Table:
    columns = {"label": pa.array((draw.random(rows) < 0.25).astype(np.int8))}
    for place, name in enumerate(NUMBERS):
        columns[name] = pa.array(draw.geometric(0.01 * (place + 1), rows), mask=draw.random(rows) < 0.1)
    for name, size in zip(CATEGORIES, _SIZES, strict=True):
        # The cube makes some values frequent and most rare, as in clicks.
        chosen = pa.array((size * draw.random(rows) ** 3).astype(np.int64))
        columns[name] = pc.binary_join_element_wise("v", chosen.cast(pa.string()), "")
    return pa.table(columns)
