"""The rows of ctr_quality.py: read as they stand, and split by time."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np

from benchmarks.ctr.rows import ABSENT, read_rows


def test_a_file_is_split_by_time(tmp_path: Path) -> None:
    lines = [f"{n % 2}\t" + "\t".join(["3"] * 12 + [""]) + "\t" + "\t".join(["ff"] * 25 + [""]) for n in range(10)]
    with lzma.open(tmp_path / "rows.xz", "wt") as file:
        file.write("\n".join(lines) + "\n")

    all_rows, five_rows = read_rows(tmp_path / "rows.xz"), read_rows(tmp_path / "rows.xz", 5)

    assert (len(all_rows.labels), all_rows.train, all_rows.valid) == (10, 8, 1)
    assert np.isnan(all_rows.numbers[:, 12]).all() and (all_rows.values[:, 25] == ABSENT).all()
    assert (all_rows.values[:, 0] == 255).all() and (all_rows.labeled, all_rows.all) == (9, 10)
    assert (len(five_rows.labels), five_rows.train, five_rows.valid, five_rows.all) == (5, 4, 0, 10)
