"""AFS, apathetic future share (Hwang et al., NSDI'21): who gets the next device, decided for two jobs at a time.

Let p be what a job does a second now and p' with the next device. Of a job a that ends sooner and a job b that ends
later, b gets it if (p'_b - p_b) / p'_b > (p'_a - p_a) / p_a, else a (equation 3). Shares start at nothing, and the
winner over all jobs gets devices one by one. AFS-L knows how long jobs are; of two without any device the shorter
wins, and a job without devices ends last. AFS-P does not: the rule is asked both ways, and a job that wins both
gets it. When not all jobs can run, AFS-P takes turns of 2 h, whoever executed the least first.

Deviations. Where both answers of AFS-P contradict each other the job with fewer devices wins, not a random one.
AFS-L asks the same way about pairs in which somebody's length is unknown. Nobody gets a device that makes it no faster.
Where allowed sizes are more than one worker apart, both sides of the rule are a device's part of the step; the first
step, to the least size, counts as one. One kind of device is known: that which there is most of and which the job
can run on. New jobs are not overestimated first: what was measured of a job is its rates' business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.models.estimates import SpeedEstimates
from elasticdl.scheduler.placement.assignment import assign_or_repack, grow_workers, next_size, sort_by_submission
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, WorkersByNode

_TINY = 1e-9  # rates are floats


class AfsShare:
    """Of one job, while devices are handed out."""

    def __init__(self, job: JobInfo, work_left: float | None, rates: Sequence[float]) -> None:
        """`job` as it may be given: without its present workers, with packed sizes. `rates` by number of workers."""
        self.job, self.work_left, self._rates = job, work_left, rates
        self.min_size_duration_s = (work_left or 0.0) / max(rates[next_size(job, 0)], _TINY)  # with its fewest workers
        self.assign({})

    def assign(self, workers: WorkersByNode) -> None:
        self.workers, self.worker_count = workers, sum(workers.values())
        size = next_size(self.job, self.worker_count)
        rate, next_rate = self._rates[self.worker_count], self._rates[size]
        self.ends_in_s = (self.work_left or 0.0) / rate if rate > 0 else float("inf")
        # The first step is never refused: a job whose speed nobody knows must run to be measured.
        self.can_use_more = bool(size) and (not self.worker_count or next_rate > rate * (1 + _TINY))
        step_devices = (size - self.worker_count) * self.job.devices if self.worker_count else 1
        # Its side of the rule where it ends sooner, and where it ends later.
        self.gain_if_sooner = (next_rate - rate) / rate / step_devices if rate > 0 else float("inf")
        self.gain_if_later = (next_rate - rate) / next_rate / step_devices if next_rate > 0 else 0.0


@dataclass(frozen=True)
class Afs:
    name: str = "afs-l"
    knows_length: bool = True
    sizes_divide_nodes: bool = False  # shares are factors and multiples of a node's devices
    quantum_s: float = 7200.0  # of AFS-P, when not all jobs can run
    is_rigid: bool = False
    interval_s: float = 0.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        """`memory`: when the turn of each running job began."""
        turn_started_at: Mapping[str, float] = memory or {}
        speeds, free = SpeedEstimates(snapshot), FreeResources(snapshot.nodes)
        queue = sort_by_submission(snapshot.jobs)
        shares = {job.name: self._share(snapshot, speeds, free, job) for job in queue}
        if self.knows_length:
            _distribute_devices(free, list(shares.values()))
        else:
            first = sorted(queue, key=lambda job: self._turn_order(job, turn_started_at, snapshot.now))
            started = [share for job in first if _start_job(free, share := shares[job.name])]
            _distribute_devices(free, sorted(started, key=lambda share: (share.job.submitted_at, share.job.name)))
        tentative = {name: share.workers for name, share in shares.items()}
        assigned = assign_or_repack(snapshot.nodes, [(job, shares[job.name].worker_count) for job in queue], tentative)
        turns = {job.name: self._turn_start(job, turn_started_at, snapshot.now) for job in queue if tentative[job.name]}
        return Decision(AllocationPlan({job.name: self._allocation(job, assigned[job.name]) for job in queue}), turns)

    def _share(self, snapshot: Snapshot, speeds: SpeedEstimates, free: FreeResources, job: JobInfo) -> AfsShare:
        max_workers = min(job.max_workers, free.total_workers_that_fit(job))
        sizes = job.sizes
        if self.sizes_divide_nodes:
            node_devices = speeds.devices_per_node.get(speeds.main_kind(job), 0)
            sizes = (
                tuple(
                    size
                    for size in job.sizes_up_to(max_workers)
                    if _divides_nodes_evenly(size * job.devices, node_devices)
                )
                or job.sizes
            )
        packable = replace(job, workers={}, sizes=sizes, max_workers=max(max_workers, job.min_workers))
        work_left = job.work_left if self.knows_length else None
        rates = speeds.rates(job, np.arange(packable.max_workers + 1))
        rates[0] = 0.0
        return AfsShare(packable, work_left, rates.tolist())

    def _turn_order(
        self, job: JobInfo, turn_started_at: Mapping[str, float], now: float
    ) -> tuple[float, float, float, str]:
        """Whoever has a turn comes first, in the order in which these began."""
        started_at = turn_started_at.get(job.name, now) if job.is_running else now
        return started_at if now - started_at < self.quantum_s else now, job.executed_s, job.submitted_at, job.name

    def _turn_start(self, job: JobInfo, turn_started_at: Mapping[str, float], now: float) -> float:
        started_at = turn_started_at.get(job.name, now)
        return started_at if now - started_at < self.quantum_s else now

    def _allocation(self, job: JobInfo, workers: WorkersByNode) -> Allocation:
        count = sum(workers.values())
        if not workers and self.knows_length:
            return Allocation({}, f"waits for its least of {next_size(job, 0)} workers: shorter jobs gain more by them")
        if not workers:
            return Allocation({}, f"waits for its turn of {self.quantum_s:g} s: others executed less, or have theirs")
        if count == job.max_workers:
            return Allocation(workers, f"all of its {count} workers")
        return Allocation(workers, f"{count} workers: another would gain less here than where it is")


def does_later_job_win(sooner: AfsShare, later: AfsShare) -> bool:
    """Equation 3: whether of two jobs the one that ends later gets the next device."""
    return later.gain_if_later > sooner.gain_if_sooner


def choose_winner(first: AfsShare, second: AfsShare) -> AfsShare:
    """Which of two jobs gets the next device. Neither order of the two nor chance matters but for equal jobs."""
    if first.work_left is None or second.work_left is None:
        return _choose_without_lengths(first, second)
    if not first.worker_count and not second.worker_count:
        return second if second.min_size_duration_s < first.min_size_duration_s else first
    sooner, later = (second, first) if second.ends_in_s < first.ends_in_s else (first, second)
    return later if does_later_job_win(sooner, later) else sooner


def _choose_without_lengths(first: AfsShare, second: AfsShare) -> AfsShare:
    if not first.worker_count and not second.worker_count:
        return min(first, second, key=lambda share: (share.work_left is None, share.job.executed_s))
    second_as_later, first_as_later = does_later_job_win(first, second), does_later_job_win(second, first)
    if second_as_later != first_as_later:
        return second if second_as_later else first
    return min(first, second, key=lambda share: share.worker_count * share.job.devices)


def _distribute_devices(free: FreeResources, shares: list[AfsShare]) -> None:
    """Until nobody can use more."""
    growing = [share for share in shares if share.can_use_more]
    while growing and free.free_devices:
        winner = growing[0]
        for share in growing[1:]:
            winner = choose_winner(winner, share)
        grown = grow_workers(free, winner.job, winner.workers, next_size(winner.job, winner.worker_count))
        if grown is not None:
            winner.assign(grown)
        if grown is None or not winner.can_use_more:
            growing.remove(winner)


def _start_job(free: FreeResources, share: AfsShare) -> bool:
    size = next_size(share.job, 0)
    workers = grow_workers(free, share.job, {}, size) if size else None
    share.assign(workers or {})
    return bool(workers)


def _divides_nodes_evenly(devices: int, node: int) -> bool:
    return node > 0 and (node % devices == 0 or devices % node == 0)


POLICY = Afs
