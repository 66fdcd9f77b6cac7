"""Measurements: between them, outside of them, and read from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elasticdl.errors import DataError
from elasticdl.scheduler.models.goodput import gain_ratio
from elasticdl.scheduler.snapshot import GradientNoise
from elasticdl.sim.traces.pollux import load_application, pack_on_nodes
from tests.unit.scheduler.traces import TRACES, needs_traces
from tests.unit.sim.measured import application


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        (directory / f"{name.replace('_', '-')}.csv").write_text(text)
    return directory


GOOD = {
    "placements": "placement,local_bsz,step_time,sync_time\n1,8,1.0,0.0\n1,16,2.0,0.0\n12,8,2.0,0.5\n21,8,4.0,1.5\n",
    "scalability": "num_nodes,num_replicas,local_bsz,step_time,sync_time\n4,8,8,3.0,1.0\n",
    "validation_16": "progress,grad_sqr,grad_var,iteration\n5,1,2,5\n9,1,3,9\n",
    "validation_64": "progress,grad_sqr,grad_var,iteration\n6,2,4,2\n8,2,5,3\n9,2,5,4\n",
}


@pytest.mark.parametrize(("workers", "placement"), [(1, (1,)), (4, (4,)), (6, (4, 2)), (8, (4, 4))])
def test_workers_are_placed_on_few_nodes(workers: int, placement: tuple[int, ...]) -> None:
    assert pack_on_nodes(workers) == placement


def test_a_measured_placement_is_interpolated_by_its_batch() -> None:
    app = application()

    assert app.step_times_s((1,), 10) == pytest.approx((0.2, 0.0))
    assert app.step_times_s((2,), 15) == pytest.approx((0.35, 0.1))
    assert app.step_times_s((1, 2), 30) == pytest.approx((0.8, 0.4))


def test_beyond_the_measured_batches_the_nearest_one_is_used() -> None:
    app = application()

    assert app.step_times_s((1,), 1) == app.step_times_s((1,), 5)
    assert app.step_times_s((1,), 400) == app.step_times_s((1,), 40)


def test_permuted_placements_are_the_same() -> None:
    app = application()

    assert app.step_times_s((2, 1), 10) == app.step_times_s((1, 2), 10)


def test_unmeasured_placements_are_interpolated() -> None:
    """Five workers on three nodes: between those of three on two, and of eight on four."""
    step, sync = application().step_times_s((2, 2, 1), 10)

    assert 0.6 < step < 1.2
    assert 0.4 < sync < 1.0


def test_far_outside_the_nearest_measurement_is_used() -> None:
    app = application()

    assert app.step_times_s((4,) * 20, 10) == pytest.approx((1.2, 1.0))


def test_noise_is_interpolated_by_the_total_batch_of_an_epoch() -> None:
    app = application()

    assert app.noise(10, 0) == GradientNoise(1.0, 1.0)
    assert app.noise(45, 0) == GradientNoise(1.0, 2.0)
    assert app.noise(1000, 2) == GradientNoise(1.0, 3.0)


def test_an_epoch_ends_at_the_smallest_progress_that_any_batch_needed() -> None:
    assert application().progress.tolist() == [100.0, 200.0, 300.0]
    assert application(epochs=2).progress.tolist() == [100.0, 200.0]
    assert application().iterations(45, 0) == pytest.approx(60.0)


def test_the_time_of_a_run_alone_matches_a_manual_calculation() -> None:
    """One worker with the initial batch: 300 steps of 0.2 s. Two: 300 of 0.25 s with 5 records each."""
    app = application()

    assert app.isolated_duration_s(10, 1) == pytest.approx(60.0)
    assert app.isolated_duration_s(10, 2) == pytest.approx(300 * 0.25)
    assert app.isolated_duration_s(10, 16) == app.isolated_duration_s(
        10, 2
    )  # no more can share ten records, five each at least
    assert app.isolated_duration_s(10, 0.5) == pytest.approx(120.0)
    assert app.isolated_duration_s(10, 1.5) == pytest.approx(2 / (1 / 60.0 + 1 / 75.0))


def test_the_best_batch_alone_is_no_slower_than_any() -> None:
    app = application()
    best = app.isolated_duration_s(None, 2)

    step, _ = app.step_times_s((2,), 20)
    assert best <= app.isolated_duration_s(40, 2) * 1.01
    assert app.isolated_duration_s(40, 2) == pytest.approx(300 * step / float(gain_ratio(app.noise(40, 0), 4.0)))


def test_files_are_read_and_placements_of_one_size_are_averaged(tmp_path: Path) -> None:
    app = load_application(write(tmp_path, **GOOD))

    assert (app.limits.initial, app.limits.maximum) == (16, 64)
    assert (app.limits.local_minimum, app.limits.local_maximum) == (8, 16)
    assert app.epochs == 2 and app.progress.tolist() == [5.0, 8.0]
    assert app.step_times_s((1,), 12) == pytest.approx((1.5, 0.0))
    assert app.points.tolist() == [[1, 1, 8, 1, 0], [1, 1, 16, 2, 0], [2, 3, 8, 3, 1], [4, 8, 8, 3, 1]]
    assert load_application(tmp_path, epochs=1, local_maximum=12).limits.local_maximum == 12


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"placements": "placement,local_bsz\n1,8\n"}, "placements.csv: expected columns local_bsz, step_time"),
        (
            {"scalability": GOOD["scalability"].replace("3.0", "slow")},
            "scalability.csv: expected columns .* with numbers",
        ),
        ({"validation_64": "progress\n1\n"}, "validation-64.csv: expected columns progress"),
    ],
)
def test_malformed_files_are_named(tmp_path: Path, changed: dict[str, str], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        load_application(write(tmp_path, **{**GOOD, **changed}))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"placements\.csv"):
        load_application(tmp_path)
    write(tmp_path, placements=GOOD["placements"], scalability=GOOD["scalability"])
    with pytest.raises(DataError, match="found none"):
        load_application(tmp_path)


@needs_traces
@pytest.mark.parametrize("name", ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"])
def test_published_measurements_have_a_time_for_every_placement(name: str) -> None:
    app = load_application(TRACES / name)

    for workers in (1, 2, 3, 5, 8, 13, 16, 31, 64):
        for local in np.geomspace(app.limits.local_minimum, app.limits.local_maximum, 4).astype(int):
            step, sync = app.step_times_s(pack_on_nodes(workers), int(local))
            assert 0 <= sync < step < 60
