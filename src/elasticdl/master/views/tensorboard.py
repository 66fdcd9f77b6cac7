"""Curves for TensorBoard: loss, learning rate, speed, workers, ps and metrics by step, without TensorFlow.

A point of the loss is drawn once, whoever dies: the master draws what is journaled, and a new master reads from the
files what the one before it has drawn. Speed, workers and ps are looked at now and then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from elasticdl.master.machine.events import EpochLoss
from elasticdl.master.machine.membership import WorkerState
from elasticdl.master.machine.state import MasterState
from elasticdl.master.strategies.loss_curve import LossPoint
from elasticdl.master.views import status
from elasticdl.reporting.event_file_pb2 import Event, SessionLog, Summary
from elasticdl.reporting.event_files import PATTERN, EventFileWriter, read_events

LOSS_TAG, EPOCH_LOSS_TAG, VALIDATION_PREFIX = "loss", "epoch/loss", "validation/"
_FLUSH_S = 2.0


class TensorBoardCurves:
    """One event file per incarnation of the master."""

    def __init__(self, directory: Path, last_step: int, started_at: float) -> None:
        """What is in `directory` and older than `started_at` was drawn by an earlier run of the job."""
        self._drawn = _read_written_steps(directory, started_at)
        self._writer = EventFileWriter(directory, _FLUSH_S)
        self._last_step = last_step

    def write_losses(self, points: Sequence[LossPoint], epochs: Sequence[EpochLoss]) -> None:
        """Draw the points and the means of epochs that are not in the files."""
        for point in points:
            if point.step in self._drawn[LOSS_TAG]:
                continue
            if not self._drawn[LOSS_TAG]:
                self._begin_run(point.step, point.at)
            self._drawn[LOSS_TAG].add(point.step)
            scalars = {LOSS_TAG: point.loss}
            if point.learning_rate is not None:
                scalars["learning_rate"] = point.learning_rate
            self._add(point.step, scalars, point.at)
        for epoch in epochs:
            if epoch.step not in self._drawn[EPOCH_LOSS_TAG]:
                self._drawn[EPOCH_LOSS_TAG].add(epoch.step)
                self._add(epoch.step, {EPOCH_LOSS_TAG: epoch.loss})

    def write_progress(self, job: MasterState) -> None:
        """Draw what is measured at the newest step, if it is new."""
        seen = job.observed
        if seen.step <= self._last_step:
            return
        self._last_step = seen.step
        members = sum(w.state is WorkerState.MEMBER for w in job.ledger.membership.workers.values())
        scalars = {"workers": float(members)}
        if seen.records_per_s:
            scalars["records_per_s"] = seen.records_per_s
        self._add(seen.step, scalars | job.strategy.progress_scalars(job) | _ps_scalars(job))

    def write_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        if step in self._drawn[VALIDATION_PREFIX]:
            return
        self._drawn[VALIDATION_PREFIX].add(step)
        # Apart from the curves of the training: an evaluation has a loss, too.
        self._add(step, {f"{VALIDATION_PREFIX}{name}": value for name, value in metrics.items()})

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _begin_run(self, step: int, at: float) -> None:
        """Let TensorBoard leave out what an earlier run of the job has drawn of this step and later ones."""
        started = SessionLog(status=SessionLog.START)
        self._writer.add(Event(wall_time=at, step=step, session_log=started))

    def _add(self, step: int, scalars: Mapping[str, float], at: float | None = None) -> None:
        values = [Summary.Value(tag=tag, simple_value=x) for tag, x in scalars.items() if not math.isnan(x)]
        wall_time = time.time() if at is None else at
        self._writer.add(Event(wall_time=wall_time, step=step, summary=Summary(value=values)))


def _read_written_steps(directory: Path, started_at: float) -> dict[str, set[int]]:
    """The steps of the points that this run has drawn, by curve."""
    drawn: dict[str, set[int]] = {LOSS_TAG: set(), EPOCH_LOSS_TAG: set(), VALIDATION_PREFIX: set()}
    for path in sorted(directory.glob(PATTERN)):
        for event in read_events(path):
            if event.wall_time < started_at:
                continue
            for value in event.summary.value:
                name = VALIDATION_PREFIX if value.tag.startswith(VALIDATION_PREFIX) else value.tag
                if name in drawn:
                    drawn[name].add(int(event.step))
    return drawn


def _ps_scalars(job: MasterState) -> dict[str, float]:
    """All ps together; each of them is in the Prometheus metrics."""
    serving = job.ledger.fleet.serving_ids()
    seen = [job.observed.ps[ps] for ps in serving if ps in job.observed.ps]
    beats = [one.heartbeat for one in seen if one.heartbeat is not None]
    if not beats:
        return {}
    staleness = tuple(sum(counts) for counts in zip_longest(*(beat.staleness for beat in beats), fillvalue=0))
    return {
        "ps/count": float(len(serving)),
        "ps/rows": float(sum(beat.rows for beat in beats)),
        "ps/memory_bytes": float(sum(beat.bytes for beat in beats)),
        "ps/requests_per_s": sum(one.requests_per_s for one in seen),
        "ps/lock_wait_s": sum(beat.lock_wait_s for beat in beats),
        "ps/staleness": status.mean_staleness(staleness),
    }
