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
        now, then = self._rates[self.worker_count], self._rates[size]
        self.ends_in_s = (self.work_left or 0.0) / now if now > 0 else float("inf")
        # The first step is never refused: a job whose speed nobody knows must run to be measured.
        self.can_use_more = bool(size) and (not self.worker_count or then > now * (1 + _TINY))
        devices = (size - self.worker_count) * self.job.devices if self.worker_count else 1
        # Its side of the rule where it ends sooner, and where it ends later.
        self.gain_if_sooner = (then - now) / now / devices if now > 0 else float("inf")
        self.gain_if_later = (then - now) / then / devices if then > 0 else 0.0


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
        began: Mapping[str, float] = memory or {}
        speeds, room = SpeedEstimates(snapshot), FreeResources(snapshot.nodes)
        queue = sort_by_submission(snapshot.jobs)
        shares = {job.name: self._share(snapshot, speeds, room, job) for job in queue}
        if self.knows_length:
            _distribute_devices(room, list(shares.values()))
        else:
            first = sorted(queue, key=lambda job: self._turn(job, began, snapshot.now))
            started = [share for job in first if _start_job(room, share := shares[job.name])]
            _distribute_devices(room, sorted(started, key=lambda share: (share.job.submitted_at, share.job.name)))
        found = {name: share.workers for name, share in shares.items()}
        given = assign_or_repack(snapshot.nodes, [(job, shares[job.name].worker_count) for job in queue], found)
        turns = {job.name: self._began(job, began, snapshot.now) for job in queue if found[job.name]}
        return Decision(AllocationPlan({job.name: self._allocation(job, given[job.name]) for job in queue}), turns)

    def _share(self, snapshot: Snapshot, speeds: SpeedEstimates, room: FreeResources, job: JobInfo) -> AfsShare:
        most = min(job.max_workers, room.total_workers_that_fit(job))
        sizes = job.sizes
        if self.sizes_divide_nodes:
            node = speeds.devices_per_node.get(speeds.main_kind(job), 0)
            sizes = (
                tuple(size for size in job.sizes_up_to(most) if _divides_nodes_evenly(size * job.devices, node))
                or job.sizes
            )
        may = replace(job, workers={}, sizes=sizes, max_workers=max(most, job.min_workers))
        left = job.work_left if self.knows_length else None
        rates = speeds.rates(job, np.arange(may.max_workers + 1))
        rates[0] = 0.0
        return AfsShare(may, left, rates.tolist())

    def _turn(self, job: JobInfo, began: Mapping[str, float], now: float) -> tuple[float, float, float, str]:
        """Whoever has a turn comes first, in the order in which these began."""
        at = began.get(job.name, now) if job.is_running else now
        return at if now - at < self.quantum_s else now, job.executed_s, job.submitted_at, job.name

    def _began(self, job: JobInfo, began: Mapping[str, float], now: float) -> float:
        at = began.get(job.name, now)
        return at if now - at < self.quantum_s else now

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


def choose_winner(one: AfsShare, other: AfsShare) -> AfsShare:
    """Which of two jobs gets the next device. Neither order of the two nor chance matters but for equal jobs."""
    if one.work_left is None or other.work_left is None:
        return _choose_without_lengths(one, other)
    if not one.worker_count and not other.worker_count:
        return other if other.min_size_duration_s < one.min_size_duration_s else one
    sooner, later = (other, one) if other.ends_in_s < one.ends_in_s else (one, other)
    return later if does_later_job_win(sooner, later) else sooner


def _choose_without_lengths(one: AfsShare, other: AfsShare) -> AfsShare:
    if not one.worker_count and not other.worker_count:
        return min(one, other, key=lambda share: (share.work_left is None, share.job.executed_s))
    other_as_later, one_as_later = does_later_job_win(one, other), does_later_job_win(other, one)
    if other_as_later != one_as_later:
        return other if other_as_later else one
    return min(one, other, key=lambda share: share.worker_count * share.job.devices)


def _distribute_devices(room: FreeResources, shares: list[AfsShare]) -> None:
    """Until nobody can use more."""
    able = [share for share in shares if share.can_use_more]
    while able and room.free_devices:
        top = able[0]
        for share in able[1:]:
            top = choose_winner(top, share)
        grown = grow_workers(room, top.job, top.workers, next_size(top.job, top.worker_count))
        if grown is not None:
            top.assign(grown)
        if grown is None or not top.can_use_more:
            able.remove(top)


def _start_job(room: FreeResources, share: AfsShare) -> bool:
    size = next_size(share.job, 0)
    workers = grow_workers(room, share.job, {}, size) if size else None
    share.assign(workers or {})
    return bool(workers)


def _divides_nodes_evenly(devices: int, node: int) -> bool:
    return node > 0 and (node % devices == 0 or devices % node == 0)


POLICY = Afs
