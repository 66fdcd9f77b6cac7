"""Curves in TensorBoard's files: a point is drawn once, also by several masters."""

from __future__ import annotations

import resource
import signal
import sys
from pathlib import Path
from types import ModuleType

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from elasticdl.master.machine.events import EpochLoss
from elasticdl.master.strategies.loss_curve import LossPoint
from elasticdl.master.views.tensorboard import TensorBoardCurves

STARTED_AT = 1000.0

# TensorBoard looks for a module of this name, and does not load TensorFlow where it is there.
sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))


def points(first: int, last: int, at: float = STARTED_AT) -> list[LossPoint]:
    return [LossPoint(step, 1.0 / 2**step, 0.1, at + step) for step in range(first, last + 1)]


def steps(directory: Path, tag: str) -> list[int]:
    files = sorted(directory.glob("*tfevents*"), key=lambda path: path.stat().st_ctime)
    events = [event for path in files for event in EventFileLoader(str(path)).Load()]
    return [event.step for event in events if any(value.tag == tag for value in event.summary.value)]


def test_a_new_master_draws_only_points_that_the_previous_one_has_not_drawn(tmp_path: Path) -> None:
    first = TensorBoardCurves.open(tmp_path, 0, STARTED_AT)
    first.write_losses(points(1, 5), [EpochLoss(1, 4, 0.25, 40)])
    first.write_metrics(4, {"accuracy": 0.5})
    first.close()

    second = TensorBoardCurves.open(tmp_path, 5, STARTED_AT)
    second.write_losses(points(1, 8), [EpochLoss(1, 4, 0.25, 40), EpochLoss(2, 8, 0.125, 40)])
    second.write_metrics(4, {"accuracy": 0.5})
    second.write_metrics(8, {"accuracy": 0.75})
    second.close()

    assert steps(tmp_path, "loss") == steps(tmp_path, "learning_rate") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert steps(tmp_path, "epoch/loss") == steps(tmp_path, "validation/accuracy") == [4, 8]


def test_a_torn_point_in_the_file_is_drawn_again(tmp_path: Path) -> None:
    first = TensorBoardCurves.open(tmp_path, 0, STARTED_AT)
    first.write_losses(points(1, 5), [])
    first.close()
    (path,) = tmp_path.glob("*tfevents*")
    path.write_bytes(path.read_bytes()[:-3])

    second = TensorBoardCurves.open(tmp_path, 5, STARTED_AT)
    second.write_losses(points(1, 6), [])
    second.close()

    assert steps(tmp_path, "loss") == [1, 2, 3, 4, 5, 6]


def test_a_resumed_job_replaces_points_of_its_earlier_run_beyond_the_checkpoint(tmp_path: Path) -> None:
    earlier = TensorBoardCurves.open(tmp_path, 0, STARTED_AT)
    earlier.write_losses(points(1, 6), [])
    earlier.close()

    resumed = TensorBoardCurves.open(tmp_path, 0, STARTED_AT + 100)
    resumed.write_losses([LossPoint(step, 7.0, 0.1, STARTED_AT + 100 + step) for step in (4, 5)], [])
    resumed.close()

    shown = EventAccumulator(str(tmp_path))
    shown.Reload()
    assert [event.step for event in shown.Tensors("loss")] == [1, 2, 3, 4, 5]


def test_points_that_cannot_be_written_are_written_later(tmp_path: Path) -> None:
    directory = tmp_path / "curves"
    directory.write_text("a file, where a directory is needed")
    curves = TensorBoardCurves.open(directory, 0, STARTED_AT)
    curves.write_losses(points(1, 5), [])
    curves.flush()

    directory.unlink()
    curves.write_losses(points(6, 7), [])
    curves.close()

    assert steps(directory, "loss") == [1, 2, 3, 4, 5, 6, 7]


def test_an_error_in_the_middle_of_a_file_loses_no_point(tmp_path: Path) -> None:
    curves = TensorBoardCurves.open(tmp_path, 0, STARTED_AT)
    curves.write_losses(points(1, 3), [])
    curves.flush()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    (path,) = tmp_path.glob("*tfevents*")
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limit[1]))
    try:
        curves.write_losses(points(4, 6), [])
        curves.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)

    curves.write_losses(points(7, 8), [])
    curves.close()

    assert sorted(set(steps(tmp_path, "loss"))) == [1, 2, 3, 4, 5, 6, 7, 8]
