"""How fast batches are read as columns: a made-up click log of 40 tab-separated columns, in order and shuffled.

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
    """Counts and hashed categories, a part of them missing."""
    with path.open("w") as out:
        for _ in range(rows):
            counts = [str(count) for count in random.integers(0, 5000, 13)]
            words = [f"{word:08x}" for word in random.integers(0, 1 << 32, 26)]
            kept = [
                text if keep else "" for text, keep in zip(counts + words, random.random(39) > MISSING, strict=True)
            ]
            out.write("\t".join([str(random.integers(2)), *kept]) + "\n")


def rows_per_s(source: ColumnarSource, kinds: dict[str, str], batch: int, shuffled: bool, seconds: float) -> float:
    """Rows in a second of one core's time."""
    random, schema, done = np.random.default_rng(0), columns.parse_schema(kinds, source.columns), 0
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        first = int(random.integers(0, len(source) - batch))
        indices = random.integers(0, len(source), batch) if shuffled else np.arange(first, first + batch)
        done += source.read_columns(indices, schema).num_rows
    return done / (time.process_time() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory) / "clicks.tsv", given.rows, np.random.default_rng(1))
        source = open_source(f"{directory}/clicks.tsv", DataSpec(columns=NAMES), Path(directory))
        assert isinstance(source, ColumnarSource)
        for name, kinds in (("text", {}), ("numbers", dict.fromkeys(NAMES[:14], "float32"))):
            for shuffled in (False, True):
                speed = rows_per_s(source, kinds, given.batch, shuffled, given.seconds)
                print(f"{name:8} {'shuffled' if shuffled else 'in order':9} {speed:10,.0f} rows/s a core")


if __name__ == "__main__":
    main()
