"""AFS, apathetic future share (Hwang et al., NSDI'21): compares two jobs at a time to decide who gets the next device.

Let p be the rate of a job now and p' its rate with the next device. Job a ends sooner than job b. The device goes to b
if (p'_b - p_b) / p'_b > (p'_a - p_a) / p_a, else to a (equation 3). All shares start at zero, and devices are given one
by one to the job that wins against all others. AFS-L knows the lengths of jobs; of two jobs without devices the shorter
one wins, and a job without devices counts as ending last. AFS-P does not know lengths: it applies the rule both ways,
and a job that wins both times gets the device. If not all jobs can run, AFS-P takes turns of 2 h, beginning with the
jobs that executed the least.

Deviations:
- If the two answers of AFS-P contradict each other, the job with fewer devices wins instead of a random one.
- AFS-L also applies the rule both ways if the length of one of the two jobs is unknown.
- No job gets a device that does not make it faster.
- If allowed sizes are more than one worker apart, each side of the rule is divided by the devices of the step. The
  first step, to the minimum size, counts as one device.
- Each job uses one kind of device: the most common one it can run on.
- New jobs are not overestimated first; the rate models decide what is assumed of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.models.estimates import SpeedEstimates
from elasticdl.scheduler.placement.assignment import assign_or_repack, grow_workers, next_size, sort_by_submission
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, WorkersByNode

_TINY = 1e-9  # rates are floats


class AfsShare:
    """The devices given to one job so far, and its two sides of equation 3."""

    def __init__(self, job: JobInfo, work_left: float | None, rates: Sequence[float]) -> None:
        """`job` has no workers and only packed sizes; `rates` is indexed by the number of workers."""
        self.job, self.work_left, self._rates = job, work_left, rates
        self.min_size_duration_s = (work_left or 0.0) / max(rates[next_size(job, 0)], _TINY)  # at its minimum size
        self.assign({})

    def assign(self, workers: WorkersByNode) -> None:
        self.workers, self.worker_count = workers, sum(workers.values())
        size = next_size(self.job, self.worker_count)
        rate, next_rate = self._rates[self.worker_count], self._rates[size]
        self.ends_in_s = (self.work_left or 0.0) / rate if rate > 0 else float("inf")
        # A job can always start: its speed is unknown until it has run.
        self.can_use_more = bool(size) and (not self.worker_count or next_rate > rate * (1 + _TINY))
        step_devices = (size - self.worker_count) * self.job.devices if self.worker_count else 1
        # The job's side of equation 3 if it ends sooner, and if it ends later.
        self.gain_if_sooner = (next_rate - rate) / rate / step_devices if rate > 0 else float("inf")
        self.gain_if_later = (next_rate - rate) / next_rate / step_devices if next_rate > 0 else 0.0


@dataclass(frozen=True)
class Afs:
    name: str = "afs-l"
    knows_length: bool = True
    sizes_divide_nodes: bool = False  # sizes are divisors or multiples of a node's devices
    quantum_s: float = 7200.0  # length of a turn of AFS-P, if not all jobs can run
    is_rigid: bool = False
    interval_s: float = 0.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Mapping[str, float] | None) -> Decision:
        """`memory` says when the turn of each running job began."""
        turn_started_at = memory or {}
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
        """Jobs with a turn come first, in the order in which their turns began."""
        started_at = turn_started_at.get(job.name, now) if job.is_running else now
        return started_at if now - started_at < self.quantum_s else now, job.executed_s, job.submitted_at, job.name

    def _turn_start(self, job: JobInfo, turn_started_at: Mapping[str, float], now: float) -> float:
        started_at = turn_started_at.get(job.name, now)
        return started_at if now - started_at < self.quantum_s else now

    def _allocation(self, job: JobInfo, workers: WorkersByNode) -> Allocation:
        count = sum(workers.values())
        if not workers and self.knows_length:
            return Allocation(
                {}, f"waits for its minimum of {next_size(job, 0)} workers: shorter jobs gain more from them"
            )
        if not workers:
            return Allocation(
                {}, f"waits for its turn of {self.quantum_s:g} s: other jobs executed less, or have their turn"
            )
        if count == job.max_workers:
            return Allocation(workers, f"all of its {count} workers")
        return Allocation(workers, f"{count} workers: another device gains more in another job")


def does_later_job_win(sooner: AfsShare, later: AfsShare) -> bool:
    """Returns whether the job that ends later gets the next device (equation 3)."""
    return later.gain_if_later > sooner.gain_if_sooner


def choose_winner(first: AfsShare, second: AfsShare) -> AfsShare:
    """Returns which of two jobs gets the next device; their order matters only if they are equal."""
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
    """Gives devices to the winners, one step at a time, until no job can use more."""
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
