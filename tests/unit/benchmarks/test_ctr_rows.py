"""The rows of ctr_quality.py: read as they stand, and split by time."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np

from benchmarks.ctr.rows import ABSENT, read


def test_a_file_is_split_by_time(tmp_path: Path) -> None:
    lines = [f"{n % 2}\t" + "\t".join(["3"] * 12 + [""]) + "\t" + "\t".join(["ff"] * 25 + [""]) for n in range(10)]
    with lzma.open(tmp_path / "rows.xz", "wt") as file:
        file.write("\n".join(lines) + "\n")

    found, some = read(tmp_path / "rows.xz"), read(tmp_path / "rows.xz", 5)

    assert (len(found.labels), found.train, found.valid) == (10, 8, 1)
    assert np.isnan(found.numbers[:, 12]).all() and (found.values[:, 25] == ABSENT).all()
    assert (found.values[:, 0] == 255).all() and (found.known, found.all) == (9, 10)
    assert (len(some.labels), some.train, some.valid, some.all) == (5, 4, 0, 10)
