"""How fast batches are read as columns: a synthetic click log of 40 tab-separated columns, in order and shuffled.

python benchmarks/columns.py
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from elasticdl.data import ColumnarSource, columns, open_source
from elasticdl.spec import DataSpec

NAMES = ("label", *(f"I{number}" for number in range(1, 14)), *(f"C{number}" for number in range(1, 27)))
MISSING = 0.2


def write(path: Path, rows: int, random: np.random.Generator) -> None:
    """Writes counts and hashed categories, a part of them missing."""
    with path.open("w") as out:
        for _ in range(rows):
            counts = [str(count) for count in random.integers(0, 5000, 13)]
            words = [f"{word:08x}" for word in random.integers(0, 1 << 32, 26)]
            fields = [
                field if is_present else ""
                for field, is_present in zip(counts + words, random.random(39) > MISSING, strict=True)
            ]
            out.write("\t".join([str(random.integers(2)), *fields]) + "\n")


def rows_per_s(source: ColumnarSource, types: dict[str, str], batch: int, shuffled: bool, seconds: float) -> float:
    """Returns the rows per second of one core's time."""
    random, schema, row_count = np.random.default_rng(0), columns.parse_schema(types, source.columns), 0
    started_at = time.process_time()
    while time.process_time() - started_at < seconds:
        start = int(random.integers(0, len(source) - batch))
        indices = random.integers(0, len(source), batch) if shuffled else np.arange(start, start + batch)
        row_count += source.read_columns(indices, schema).num_rows
    return row_count / (time.process_time() - started_at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory) / "clicks.tsv", options.rows, np.random.default_rng(1))
        source = open_source(f"{directory}/clicks.tsv", DataSpec(columns=NAMES), Path(directory))
        assert isinstance(source, ColumnarSource)
        for name, types in (("text", {}), ("numbers", dict.fromkeys(NAMES[:14], "float32"))):
            for shuffled in (False, True):
                rate = rows_per_s(source, types, options.batch, shuffled, options.seconds)
                print(f"{name:8} {'shuffled' if shuffled else 'in order':9} {rate:10,.0f} rows/s a core")


if __name__ == "__main__":
    main()
