"""What came out of one simulation: records of its jobs, and the numbers a policy is judged by."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np

from elasticdl.sim.records import Records


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
    ended: Records
    never: Records  # with their reason
    unfinished: int  # when somebody stopped it
    used: tuple[tuple[float, float], ...]  # devices in use, from when
    device_s: float
    refused: int  # answers of the policy that broke a rule
    trouble: str  # the last of these
    timing: Timing
    stopped_at: float | None = field(default=None)

    @cached_property
    def numbers(self) -> Numbers:
        if not self.ended:
            return Numbers(0, *[float("nan")] * (len(fields(Numbers)) - 1))
        submitted, finished = self.ended.column("submitted_at"), self.ended.column("finished_at")
        first = float(min(submitted.min(), self.never.column("submitted_at").min(initial=np.inf)))
        last = float(finished.max()) if self.stopped_at is None else self.stopped_at
        times, fairness = finished - submitted, self.ended.column("fairness")
        fairness = fairness[~np.isnan(fairness)]
        p50, p90, p99 = (float(one) for one in np.percentile(times, [50, 90, 99]))
        return Numbers(
            len(times),
            float(times.mean()),
            p50,
            p90,
            p99,
            last - first,
            float(self.ended.column("waited_s").mean()),
            self.device_s / max(self.devices * (last - first), 1e-9),
            float(self.ended.column("restarts").mean()),
            float(fairness.max()),
            float(fairness.mean()),
        )
