"""The data that the jobs of ctr_quality.py get, and how their predictions are read."""

from __future__ import annotations

import importlib
import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("ctr.jobs"), importlib.import_module("ctr.rows")


def test_labels_after_the_validation_part_are_not_in_the_file(modules: tuple[Any, Any], tmp_path: Path) -> None:
    jobs, rows = modules
    data = tmp_path / "rows.xz"
    with lzma.open(data, "wt") as file:
        file.write("".join("1\t" + "\t".join(["3"] * 13 + ["ff"] * 26) + "\n" for _ in range(30)))

    jobs.CtrJobs.prepare(rows.read_rows(data, 20), data, tmp_path / "jobs")

    header, *lines = (tmp_path / "jobs" / "clicks.tsv").read_text().splitlines()
    assert header.split("\t")[::39] == ["label", "C26"]
    assert [line.split("\t")[0] for line in lines] == ["1"] * 18 + ["0"] * 2
    assert all(line.split("\t")[1:] == ["3"] * 13 + ["ff"] * 26 for line in lines)


def test_predictions_are_in_the_order_of_records(modules: tuple[Any, Any], tmp_path: Path) -> None:
    jobs, _ = modules
    for part, (records, probabilities) in enumerate((([2, 3], [0.3, 0.4]), ([0, 1], [0.1, 0.2]))):
        pq.write_table(
            pa.table({"record": records, "probability": probabilities, "score": probabilities}),
            tmp_path / f"{part}.parquet",
        )

    assert jobs.read_predictions(tmp_path).tolist() == [0.1, 0.2, 0.3, 0.4]
