"""Curves for TensorBoard: loss, learning rate, speed, workers and metrics by step, without TensorFlow.

Importing tensorboard takes longer than starting the master, so this module is imported once it serves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from elasticdl import curves
from elasticdl.master.job import Job
from elasticdl.master.membership import WorkerState

_FLUSH_S = 2


class Curves:
    """One event file per incarnation of the master; a step is drawn once."""

    def __init__(self, directory: Path, last_step: int) -> None:
        curves.avoid_tensorflow()
        self._writer = EventFileWriter(str(directory), flush_secs=_FLUSH_S)
        self._last_step = last_step

    def progress(self, job: Job) -> None:
        """Draw the newest step, if it is new."""
        seen = job.seen
        if seen.step <= self._last_step:
            return
        self._last_step = seen.step
        members = sum(w.state is WorkerState.MEMBER for w in job.ledger.membership.workers.values())
        scalars = {"loss": seen.loss, "workers": float(members)}
        if seen.learning_rate:
            scalars["learning_rate"] = seen.learning_rate
        if seen.rate:
            scalars["records_per_s"] = seen.rate
        self._add(seen.step, scalars)

    def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        # Apart from the curves of the training: an evaluation has a loss, too.
        self._add(step, {f"validation/{name}": value for name, value in metrics.items()})

    def close(self) -> None:
        self._writer.close()

    def _add(self, step: int, scalars: Mapping[str, float]) -> None:
        values = [Summary.Value(tag=tag, simple_value=x) for tag, x in scalars.items() if not math.isnan(x)]
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
