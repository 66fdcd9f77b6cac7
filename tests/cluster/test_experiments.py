"""The two experiments of the original ElasticDL, live and short: they measure what they claim."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.kube import ROOT, Kube

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PNG = b"\x89PNG"


def experiment(kube: Kube, name: str, directory: Path) -> dict[str, dict[str, Any]]:
    """Its rows by their measures."""
    file, plot = directory / "rows.json", directory / "plot.png"
    argv = [sys.executable, str(ROOT / "benchmarks" / name), "--quick", "--json", str(file), "--plot", str(plot)]
    environ = {**os.environ, **kube.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=540, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert plot.read_bytes().startswith(PNG)
    return {row["measure"]: row for row in json.loads(file.read_text())}


def row_starting_with(rows: dict[str, dict[str, Any]], words: str) -> dict[str, Any]:
    """The one row whose measure begins with these words."""
    (row,) = (row for measure, row in rows.items() if measure.startswith(words))
    return row


def test_a_web_service_takes_slots_at_once_and_the_job_takes_the_rest(kube: Kube, tmp_path: Path) -> None:
    rows = experiment(kube, "kube_preemption.py", tmp_path)

    assert rows["utilisation of the scarce resource, pods that run, mean"]["ours"] > 90.0
    worst = row_starting_with(rows, "web pod from created to Running, worst")
    assert worst["met"], worst
    assert rows["workers preempted"]["ours"] >= 5  # of those there were at night
    assert row_starting_with(rows, "failures of")["ours"] == 0
    assert rows["the job grows back, last hour"]["ours"] > 0  # it did; how soon depends on who else uses the machine
    assert rows["steps and records of the job"]["ours"] == "exact"


def test_the_second_of_two_elastic_jobs_starts_at_once(kube: Kube, tmp_path: Path) -> None:
    rows = experiment(kube, "kube_two_jobs.py", tmp_path)

    second = rows["waiting time of the second job"]
    assert second["ours"] < second["peer"], second
    both = rows["end of both"]
    assert both["ours"] < both["peer"], both
    busy = rows["utilisation, workers that run, mean"]
    assert busy["ours"] > busy["peer"], busy
    assert rows["steps and records of all jobs"]["met"]
