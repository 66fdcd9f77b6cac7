"""Curves for TensorBoard: loss, learning rate, speed, workers, ps and metrics by step, without TensorFlow.

Importing tensorboard takes longer than starting the master, so this module is imported once it serves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from elasticdl import curves
from elasticdl.master import ps_status
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
        self._add(seen.step, scalars | _fleet(job))

    def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        # Apart from the curves of the training: an evaluation has a loss, too.
        self._add(step, {f"validation/{name}": value for name, value in metrics.items()})

    def close(self) -> None:
        self._writer.close()

    def _add(self, step: int, scalars: Mapping[str, float]) -> None:
        values = [Summary.Value(tag=tag, simple_value=x) for tag, x in scalars.items() if not math.isnan(x)]
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))


def _fleet(job: Job) -> dict[str, float]:
    """All ps together; each of them is in the Prometheus metrics."""
    serving = job.ledger.fleet.serving()
    seen = [job.seen.ps[ps] for ps in serving if ps in job.seen.ps]
    beats = [one.beat for one in seen if one.beat is not None]
    if not beats:
        return {}
    staleness = tuple(sum(counts) for counts in zip_longest(*(beat.staleness for beat in beats), fillvalue=0))
    return {
        "ps/count": float(len(serving)),
        "ps/rows": float(sum(beat.rows for beat in beats)),
        "ps/memory_bytes": float(sum(beat.bytes for beat in beats)),
        "ps/requests_per_s": sum(one.requests_per_s for one in seen),
        "ps/lock_wait_s": sum(beat.lock_wait_s for beat in beats),
        "ps/staleness": ps_status.mean_staleness(staleness),
    }
