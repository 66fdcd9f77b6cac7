"""A snapshot is read as it was written, except that rates become a table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.errors import DataError
from elasticdl.scheduler import snapshot_file
from elasticdl.scheduler.models.rate_table import RateTable
from elasticdl.scheduler.snapshot import (
    GradientNoise,
    JobInfo,
    NodeInfo,
    PlacementConstraint,
    Snapshot,
    SpeedSample,
    UtilityFunction,
)
from elasticdl.scheduler.snapshot_file import SnapshotWithUnits
from elasticdl.sim.traces.recorded import AssumedScalingModel

NODES = (NodeInfo("n0", 4, "a100", "r0", {"memory": 64e9}), NodeInfo("n1", 8, "t4"))
FULL = JobInfo(
    "full",
    5.0,
    2,
    8,
    4,
    (2, 4, 8),
    3,
    "team",
    1,
    {"memory": 1e9},
    ("a100", "t4"),
    (PlacementConstraint(2, "a100", True),),
    workers={"n0": 2},
    started_at=6.0,
    attained_s=12.0,
    speeds=(SpeedSample(1, 2, 32, 0.1, 0.08, "a100"),),
    noise=GradientNoise(1.0, 2.0),
    work_left=50.0,
    utility=UtilityFunction(2.0),
)


def test_a_snapshot_is_read_as_it_was_written(tmp_path: Path) -> None:
    document = SnapshotWithUnits(Snapshot(10.0, NODES, (FULL, JobInfo("plain", 7.0)), is_shared=True), "cpu", 0.1)
    snapshot_file.write_snapshot(tmp_path / "s.json", document)

    assert snapshot_file.read_snapshot(tmp_path / "s.json") == document


def test_rates_become_a_table_of_sizes(tmp_path: Path) -> None:
    job = replace(FULL, rates=AssumedScalingModel(4, 0.5), sizes=())
    snapshot_file.write_snapshot(tmp_path / "s.json", SnapshotWithUnits(Snapshot(10.0, NODES, (job,))))
    rates = snapshot_file.read_snapshot(tmp_path / "s.json").snapshot.jobs[0].rates

    assert isinstance(rates, RateTable)
    sizes = np.arange(0, 9)
    assert rates.work_per_s(sizes, sizes, "t4") == pytest.approx(AssumedScalingModel(4, 0.5).work_per_s(sizes, sizes))


def changed(**values: Any) -> dict[str, Any]:
    document = snapshot_file.to_document(SnapshotWithUnits(Snapshot(10.0, NODES, (FULL,))))
    document["jobs"][0] |= values
    return document


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], "expected a snapshot of version 1, received 'list'"),
        ({"version": 2}, "expected a snapshot of version 1, received 2"),
        ({"version": 1, "now": 1.0, "jobs": []}, "'nodes' is missing"),
        (changed(min_workers=9), "job full: expected minimum <= maximum"),
        (changed(min_workers="2"), "not a snapshot"),
        (changed(workers={"lost": 1}), "has workers on .'lost'."),
        (changed(workers={"n0": 1.5}), "workers on n0: expected int, received 1.5"),
        (changed(colour="red"), "colour"),
        (changed(rates={"": [[2, 1.0], [1, 1.0]]}), "expected sizes in order"),
        (changed(rates={"": [[1, float("nan")]]}), "a rate of 0 or more"),
        (changed(rates=[1]), "received list"),
        (changed(submitted_at=-1.0), "time of submission"),
    ],
)
def test_a_malformed_snapshot_is_refused_with_the_reason(tmp_path: Path, document: Any, complaint: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(document))

    with pytest.raises(DataError, match=rf"s.json: .*{complaint}"):
        snapshot_file.read_snapshot(path)
