"""Curves for TensorBoard: loss, learning rate, speed, workers, ps and metrics by step, without TensorFlow.

A point of the loss is drawn once, although masters may be killed: the master draws what is journaled, and a new master
reads from the files what the previous one has drawn. Speed, workers and ps are drawn at regular times.
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
    """The curves of a job. Each master writes its own event file."""

    def __init__(self, writer: EventFileWriter, last_step: int, drawn_steps: dict[str, set[int]]) -> None:
        self._writer = writer
        self._last_step = last_step
        self._drawn_steps = drawn_steps

    @classmethod
    def open(cls, directory: Path, last_step: int, started_at: float) -> TensorBoardCurves:
        """Reads what this run of the job has drawn; points before `started_at` belong to an earlier run."""
        return cls(EventFileWriter(directory, _FLUSH_S), last_step, _read_drawn_steps(directory, started_at))

    def write_losses(self, points: Sequence[LossPoint], epochs: Sequence[EpochLoss]) -> None:
        """Draws the points and the means of epochs that are not in the files."""
        for point in points:
            if point.step in self._drawn_steps[LOSS_TAG]:
                continue
            if not self._drawn_steps[LOSS_TAG]:
                self._begin_run(point.step, point.at)
            self._drawn_steps[LOSS_TAG].add(point.step)
            scalars = {LOSS_TAG: point.loss}
            if point.learning_rate is not None:
                scalars["learning_rate"] = point.learning_rate
            self._add(point.step, scalars, point.at)
        for epoch in epochs:
            if epoch.step not in self._drawn_steps[EPOCH_LOSS_TAG]:
                self._drawn_steps[EPOCH_LOSS_TAG].add(epoch.step)
                self._add(epoch.step, {EPOCH_LOSS_TAG: epoch.loss})

    def write_progress(self, job: MasterState) -> None:
        """Draws the measurements of the newest step, unless they are drawn already."""
        observed = job.observed
        if observed.step <= self._last_step:
            return
        self._last_step = observed.step
        members = sum(w.state is WorkerState.MEMBER for w in job.ledger.membership.workers.values())
        scalars = {"workers": float(members)}
        if observed.records_per_s:
            scalars["records_per_s"] = observed.records_per_s
        self._add(observed.step, scalars | job.strategy.progress_scalars(job) | _ps_scalars(job))

    def write_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        if step in self._drawn_steps[VALIDATION_PREFIX]:
            return
        self._drawn_steps[VALIDATION_PREFIX].add(step)
        # With a prefix, because an evaluation has a loss too.
        self._add(step, {f"{VALIDATION_PREFIX}{name}": value for name, value in metrics.items()})

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _begin_run(self, step: int, wall_time: float) -> None:
        """Makes TensorBoard omit what an earlier run of the job has drawn from this step on."""
        started = SessionLog(status=SessionLog.START)
        self._writer.add(Event(wall_time=wall_time, step=step, session_log=started))

    def _add(self, step: int, scalars: Mapping[str, float], wall_time: float | None = None) -> None:
        values = [Summary.Value(tag=tag, simple_value=x) for tag, x in scalars.items() if not math.isnan(x)]
        wall_time = time.time() if wall_time is None else wall_time
        self._writer.add(Event(wall_time=wall_time, step=step, summary=Summary(value=values)))


def _read_drawn_steps(directory: Path, started_at: float) -> dict[str, set[int]]:
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
    """The sums over all ps; the Prometheus metrics have each ps."""
    serving = job.ledger.fleet.serving_ids()
    observed = [job.observed.ps[ps] for ps in serving if ps in job.observed.ps]
    heartbeats = [ps.heartbeat for ps in observed if ps.heartbeat is not None]
    if not heartbeats:
        return {}
    staleness = tuple(
        sum(counts) for counts in zip_longest(*(heartbeat.staleness for heartbeat in heartbeats), fillvalue=0)
    )
    return {
        "ps/count": float(len(serving)),
        "ps/rows": float(sum(heartbeat.rows for heartbeat in heartbeats)),
        "ps/memory_bytes": float(sum(heartbeat.bytes for heartbeat in heartbeats)),
        "ps/requests_per_s": sum(ps.requests_per_s for ps in observed),
        "ps/lock_wait_s": sum(heartbeat.lock_wait_s for heartbeat in heartbeats),
        "ps/staleness": status.mean_staleness(staleness),
    }
