"""What came out of one simulation: records of its jobs, and the numbers a policy is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np

from elasticdl.sim.interface import Record


@dataclass(frozen=True, slots=True)
class Numbers:
    """Of the jobs that ended. Times in seconds."""

    jobs: int
    mean_jct_s: float
    p50_jct_s: float
    p90_jct_s: float
    p99_jct_s: float
    makespan_s: float
    queueing_s: float  # mean time without workers
    utilisation: float  # devices that were given to jobs, of all, from the first submission to the last end
    restarts: float  # mean number of changes of a job's workers
    worst_fairness: float  # greatest finish-time fairness
    mean_fairness: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Real time, which differs from run to run."""

    wall_s: float
    policy_s: float
    slowest_s: float
    decisions: int


@dataclass(frozen=True)
class Outcome:
    """One policy on one trace. The same seed gives the same of everything but `timing`."""

    policy: str
    devices: int
    ended: tuple[Record, ...]
    never: tuple[Record, ...]  # with their reason
    unfinished: int  # when somebody stopped it
    used: tuple[tuple[float, float], ...]  # devices in use, from when
    device_s: float
    refused: int  # answers of the policy that broke a rule
    trouble: str  # the last of these
    timing: Timing
    stopped_at: float | None = field(default=None)

    @cached_property
    def numbers(self) -> Numbers:
        times = [one.jct_s for one in self.ended if one.jct_s is not None]
        if not times:
            return Numbers(0, *[float("nan")] * (len(fields(Numbers)) - 1))
        first = min(one.submitted_at for one in (*self.ended, *self.never))
        last = max(one.finished_at or 0.0 for one in self.ended) if self.stopped_at is None else self.stopped_at
        fairness = [one.fairness for one in self.ended if one.fairness is not None]
        p50, p90, p99 = (float(one) for one in np.percentile(times, [50, 90, 99]))
        return Numbers(
            len(times),
            _mean(times),
            p50,
            p90,
            p99,
            last - first,
            _mean([one.waited_s for one in self.ended]),
            self.device_s / max(self.devices * (last - first), 1e-9),
            _mean([one.restarts for one in self.ended]),
            max(fairness),
            _mean(fairness),
        )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
