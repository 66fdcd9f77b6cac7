"""Themis (Mahajan et al., NSDI'20): finish-time fairness by leases and partial allocation auctions.

rho of a job is its duration from submission to its expected end, over what it would be alone on 1/n of the cluster.
Workers are leased for 10 minutes. Free devices are offered to the jobs without a lease, to the fraction 1 - f of them
with the worst rho, which bid their rho for a few sizes. The auction chooses sizes that maximise the product of 1/rho.
Each winner makes a hidden payment: it gets the fraction of its size that equals the product of 1/rho of the other
bidders over what that product would be without it, so that a false bid does not pay. The leftovers go round to jobs
that did not bid, then to those that did.

Deviations:
- A job is an app, with one lease over all of its workers. It does not bid while the lease lasts, and leftovers end with
  the lease.
- A bid is for a number of workers on as few nodes as possible instead of a set of devices; the rate models know about
  locality.
- n is the current number of jobs instead of its mean over the job's life.
- A job without workers is expected to wait for one lease, then to go on at its minimum.
- Leftovers are given in order of rho instead of at random.
- A job of unknown length is assumed to have as much work left as it did. Kinds of devices are not distinguished.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from elasticdl.scheduler.interface import Decision, Floats
from elasticdl.scheduler.models.estimates import SpeedEstimates, candidate_sizes
from elasticdl.scheduler.placement.assignment import grow_round_robin, place_at_most, sort_by_change
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, WorkersByNode

_TINY = 1e-9


@dataclass(frozen=True)
class DeviceLease:
    worker_count: int
    expires_at: float


@dataclass(frozen=True)
class Bid:
    """The rho of one job for a few sizes; the first size is 0."""

    job: JobInfo
    sizes: tuple[int, ...]
    rho: Floats

    @property
    def devices(self) -> list[int]:
        return [size * self.job.devices for size in self.sizes]


@dataclass(frozen=True)
class Themis:
    name: str = "themis"
    lease_s: float = 600.0
    fairness: float = 0.8  # f: free devices are offered to the worst 1 - f of the jobs without a lease
    is_rigid: bool = False
    interval_s: float = 60.0  # leases may end at any time
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Mapping[str, DeviceLease] | None) -> Decision:
        """`memory` is the lease of each job that has one."""
        leases: dict[str, DeviceLease] = {
            job.name: lease
            for job in snapshot.jobs
            if (lease := (memory or {}).get(job.name)) is not None and lease.expires_at > snapshot.now
        }
        fairness = _FinishTimeFairness(snapshot, self.lease_s)
        free, assigned = FreeResources(snapshot.nodes), {}
        for job, count in sort_by_change(
            (job, leases[job.name].worker_count) for job in snapshot.jobs if job.name in leases
        ):
            assigned[job.name] = place_at_most(free, job, count)
            free.allocate(job, assigned[job.name])
        unleased = [job for job in fairness.sort_worst_first(leases) if not assigned.get(job.name)]
        bidders = unleased[: math.ceil((1 - self.fairness) * len(unleased))]
        won = run_auction([fairness.make_bid(job, free) for job in bidders], free.free_devices)
        for job, count in sort_by_change((job, won[job.name]) for job in bidders):
            assigned[job.name] = place_at_most(free, job, count) if count else {}
            free.allocate(job, assigned[job.name])
        bidder_names = {job.name for job in bidders}
        worst_first = fairness.sort_worst_first(leases)
        grow_round_robin(free, [job for job in worst_first if job.name not in bidder_names], assigned)
        grow_round_robin(free, [job for job in worst_first if job.name in bidder_names], assigned)
        new_leases = {
            name: DeviceLease(
                sum(workers.values()), leases[name].expires_at if name in leases else snapshot.now + self.lease_s
            )
            for name, workers in assigned.items()
            if workers
        }
        answers = {
            job.name: _allocation(job, assigned.get(job.name, {}), new_leases, fairness, snapshot.now)
            for job in snapshot.jobs
        }
        return Decision(AllocationPlan(answers), new_leases)


def run_auction(bids: Sequence[Bid], devices: int) -> dict[str, int]:
    """Returns the workers of each bidder: its proportionally fair size, reduced by its hidden payment."""
    won: dict[str, int] = {}
    if not bids:
        return won
    fair = proportionally_fair_sizes(bids, devices)
    for index, bid in enumerate(bids):
        other_bidders = [*range(index), *range(index + 1, len(bids))]
        absent = proportionally_fair_sizes([bids[bidder] for bidder in other_bidders], devices)
        logs = [
            math.log(bids[bidder].rho[choice] / bids[bidder].rho[fair[bidder]])
            for bidder, choice in zip(other_bidders, absent, strict=True)
        ]
        payment = math.exp(min(sum(logs), 0.0))
        won[bid.job.name] = bid.job.max_size_up_to(int(bid.sizes[fair[index]] * payment + 1e-6))
    return won


def proportionally_fair_sizes(bids: Sequence[Bid], devices: int) -> list[int]:
    """Returns the index of each bidder's size; together they have the greatest product of 1/rho on these devices."""
    best = np.zeros(devices + 1)  # greatest sum of -log(rho), by number of devices
    choices = []
    for bid in bids:
        values = np.full((len(bid.sizes), devices + 1), -np.inf)
        for row, (needs, rho) in enumerate(zip(bid.devices, bid.rho, strict=True)):
            if needs <= devices:
                values[row, needs:] = best[: devices + 1 - needs] - math.log(rho)
        choice = values.argmax(axis=0)
        best = values[choice, np.arange(devices + 1)]
        choices.append(choice)
    places, remaining = [], devices
    for bid, choice in zip(reversed(bids), reversed(choices), strict=True):
        places.append(int(choice[remaining]))
        remaining -= bid.devices[places[-1]]
    return places[::-1]


@dataclass
class _FinishTimeFairness:
    """Computes rho of the jobs in a snapshot for any number of workers."""

    snapshot: Snapshot
    lease_s: float
    _isolated_durations: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.speeds = SpeedEstimates(self.snapshot)
        self.fair_share = 1.0 / max(len(self.snapshot.jobs), 1)

    def rho(self, job: JobInfo, sizes: Sequence[int]) -> Floats:
        """Returns rho with these worker counts. With 0 a job waits for one lease, then runs at its minimum."""
        min_workers = max(job.min_workers, 1)
        counts = np.array([size or min_workers for size in sizes])
        rates = np.maximum(self.speeds.rates(job, counts), _TINY)
        waits = np.where(np.array(sizes) == 0, self.lease_s, 0.0)
        ends = max(self.snapshot.now - job.submitted_at, 0.0) + waits + self.speeds.work_left(job) / rates
        result: Floats = np.maximum(ends, _TINY) / self._isolated_duration_s(job)
        return result

    def make_bid(self, job: JobInfo, free: FreeResources) -> Bid:
        sizes = 0, *candidate_sizes(job, free.total_workers_that_fit(job))
        # More workers may be slower, but no bid gets worse with more.
        return Bid(job, sizes, np.minimum.accumulate(self.rho(job, sizes)))

    def sort_worst_first(self, leases: Mapping[str, DeviceLease]) -> list[JobInfo]:
        def key(job: JobInfo) -> tuple[float, float, str]:
            lease = leases.get(job.name)
            return -float(self.rho(job, [lease.worker_count if lease else 0])[0]), job.submitted_at, job.name

        return sorted(self.snapshot.jobs, key=key)

    def _isolated_duration_s(self, job: JobInfo) -> float:
        """Returns how long the job takes alone on its part of the cluster."""
        if job.name not in self._isolated_durations:
            max_workers = max(
                job.max_size_up_to(max(self.snapshot.total_devices // job.devices, 1)), job.min_workers, 1
            )
            duration_s = (job.work_done + self.speeds.work_left(job)) / max(self.speeds.rate(job, max_workers), _TINY)
            self._isolated_durations[job.name] = max(duration_s / self.fair_share, _TINY)
        return self._isolated_durations[job.name]


def _allocation(
    job: JobInfo, workers: WorkersByNode, leases: Mapping[str, DeviceLease], fairness: _FinishTimeFairness, now: float
) -> Allocation:
    count = sum(workers.values())
    rho = float(fairness.rho(job, [count])[0])
    if not workers:
        ends = min((lease.expires_at for lease in leases.values()), default=None)
        reason = f"waits at a finish-time fairness of {rho:.3g}: all devices are leased to other jobs"
        return Allocation({}, reason, expected_wait_s=None if ends is None else max(ends - now, 0.0))
    remaining_s = leases[job.name].expires_at - now
    return Allocation(workers, f"{count} workers leased for {remaining_s:.0f} s more, finish-time fairness {rho:.3g}")


POLICY = Themis
