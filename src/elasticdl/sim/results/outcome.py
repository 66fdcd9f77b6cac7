"""The outcome of one simulation: compact records of its jobs and the metrics a policy is judged by."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from elasticdl.sim.interface import AllocationSpan, JobRecord


@dataclass(frozen=True, slots=True)
class OutcomeMetrics:
    """Metrics of the jobs that ended. Times are in seconds."""

    jobs: int
    mean_jct_s: float
    p50_jct_s: float
    p90_jct_s: float
    p99_jct_s: float
    makespan_s: float
    queueing_s: float  # mean time without workers
    utilization: float  # share of devices allocated to jobs, from the first submission to the last end
    restarts: float  # mean number of changes of a job's workers
    worst_fairness: float  # greatest finish-time fairness
    mean_fairness: float


@dataclass(frozen=True, slots=True)
class SimulationTiming:
    """Real times, which differ from run to run."""

    wall_s: float
    policy_s: float
    max_policy_s: float
    decisions: int


@dataclass(frozen=True)
class SimulationOutcome:
    """One policy on one trace. The same seed gives the same outcome except for `timing`."""

    policy: str
    devices: int
    finished_jobs: JobRecords
    never_started_jobs: JobRecords  # with the reason
    unfinished: int  # if the simulation was stopped
    device_usage: tuple[tuple[float, float], ...]  # (time, devices in use), a point for each change
    device_s: float
    rejected_plans: int  # plans that broke a rule
    policy_error: str  # the last of these
    timing: SimulationTiming
    stopped_at: float | None = field(default=None)

    @cached_property
    def metrics(self) -> OutcomeMetrics:
        if not self.finished_jobs:
            return OutcomeMetrics(0, *[float("nan")] * (len(fields(OutcomeMetrics)) - 1))
        submitted, finished = self.finished_jobs.column("submitted_at"), self.finished_jobs.column("finished_at")
        first = float(min(submitted.min(), self.never_started_jobs.column("submitted_at").min(initial=np.inf)))
        last = float(finished.max()) if self.stopped_at is None else self.stopped_at
        times, fairness = finished - submitted, self.finished_jobs.column("fairness")
        fairness = fairness[~np.isnan(fairness)]
        p50, p90, p99 = (float(value) for value in np.percentile(times, [50, 90, 99]))
        return OutcomeMetrics(
            len(times),
            float(times.mean()),
            p50,
            p90,
            p99,
            last - first,
            float(self.finished_jobs.column("waited_s").mean()),
            self.device_s / max(self.devices * (last - first), 1e-9),
            float(self.finished_jobs.column("restarts").mean()),
            float(fairness.max()),
            float(fairness.mean()),
        )


_INTEGERS = ("requested", "priority", "restarts")
_TIMES = ("submitted_at", "waited_s", "attained_s")
_OPTIONAL = ("started_at", "finished_at", "fairness")  # NaN stands for None
_TEXTS = ("name", "application", "reason")


class JobRecords(Sequence[JobRecord]):
    """A list of records that only grows, in columns of numbers: about 120 bytes per job instead of 500."""

    def __init__(self, records: Iterable[JobRecord] = ()) -> None:
        self._columns = {name: array("d") for name in (*_INTEGERS, *_TIMES, *_OPTIONAL)}
        self._texts = bytearray()
        self._ends = array("Q")  # end of each text, three per record
        self._spans: dict[int, list[AllocationSpan]] = {}
        for record in records:
            self.append(record)

    def append(self, record: JobRecord) -> None:
        if record.spans:
            self._spans[len(self)] = record.spans
        for name, column in self._columns.items():
            value = getattr(record, name)
            column.append(math.nan if value is None else value)
        for name in _TEXTS:
            self._texts += getattr(record, name).encode()
            self._ends.append(len(self._texts))

    def column(self, name: str) -> NDArray[np.float64]:
        """Returns one number of every record; NaN if there is none."""
        return np.array(self._columns[name])

    def __len__(self) -> int:
        return len(self._ends) // len(_TEXTS)

    @overload
    def __getitem__(self, index: int) -> JobRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[JobRecord]: ...
    def __getitem__(self, index: int | slice) -> JobRecord | Sequence[JobRecord]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        numbers = {name: column[index] for name, column in self._columns.items()}
        first = index * len(_TEXTS)
        starts = [self._ends[first - 1] if first else 0, *self._ends[first : first + len(_TEXTS) - 1]]
        texts = [self._texts[start : self._ends[first + offset]].decode() for offset, start in enumerate(starts)]
        return JobRecord(
            **dict(zip(_TEXTS, texts, strict=True)),  # type: ignore[arg-type]
            **{name: int(numbers[name]) for name in _INTEGERS},  # type: ignore[arg-type]
            **{name: numbers[name] for name in _TIMES},  # type: ignore[arg-type]
            **{name: None if math.isnan(numbers[name]) else numbers[name] for name in _OPTIONAL},  # type: ignore[arg-type]
            spans=self._spans.get(index, []),
        )
