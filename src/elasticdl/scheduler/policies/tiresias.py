"""Tiresias (NSDI'19): least attained service in two queues, or the Gittins index in the first; gangs.

Service is devices times seconds that a job ran. A job starts in the first queue and moves to the end of the second when
its service reaches `threshold_s`. The queues are walked in order; a job runs if it requests no more devices than are
left, counted over all nodes, otherwise the next one is tried. Running jobs that are not reached are suspended. Running
jobs stay where they are; others take the nodes with the most free devices.

2D-LAS: first in, first out within a queue. 2D-Gittins: the first queue is sorted by index, the greatest first, computed
from the service of jobs that ended (with fewer than `MIN_GITTINS_SAMPLES` of them, as 2D-LAS); the second queue stays
first in, first out.

Deviations:
- The threshold of 57,600 device-seconds, decisions every 60 s, no promotion, and counting time from decision to
  decision are those of Pollux's port. `promote_after`=8 promotes a job that waited 8 times as long as it ran (0:
  never), as vodascheduler does.
- Gittins's E[min(S − a, Δ)] is the paper's; the released simulator sums S where S − a is meant. Δ is any value up to
  the end of the queue, not only that.
- The service of an ended job is that at the last decision before its end.
- There is no placement by the skew of tensors, because no job declares it.
- A reached job whose workers fit nowhere (several devices each, other resources, kinds) waits, and jobs that were not
  reached are tried.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.placement.assignment import sort_by_submission
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import meets_constraints, place_workers
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, WorkersByNode

MIN_GITTINS_SAMPLES = 10  # ended jobs needed for an index
MAX_GITTINS_SAMPLES = 1000


@dataclass(frozen=True)
class Memory:
    """What one decision leaves for the next."""

    decided_at: float = 0.0
    queues: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    executed_s: Mapping[str, float] = field(default_factory=dict)  # since the last promotion
    waited_s: Mapping[str, float] = field(default_factory=dict)  # since the job ran last
    total_service_s: Mapping[str, float] = field(
        default_factory=dict
    )  # device-seconds, including those before a promotion
    ended_service_s: tuple[float, ...] = ()  # device-seconds of the most recently ended jobs


@dataclass(frozen=True)
class Tiresias:
    name: str = "tiresias"
    threshold_s: float = 57_600.0  # device-seconds
    promote_after: float = 0.0  # promote a job that waited this many times as long as it ran; 0: never
    is_gittins: bool = False
    is_rigid: bool = True
    interval_s: float = 60.0
    decides_on_events: bool = False
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        updated = update_memory(snapshot, memory, self.threshold_s, self.promote_after)
        queue = self.sort_jobs(snapshot.jobs_by_name, updated)
        remaining = snapshot.total_devices
        reached: list[JobInfo] = []
        for job in queue:
            if job.rigid_size * job.devices <= remaining:
                remaining -= job.rigid_size * job.devices
                reached.append(job)
        assigned = place_in_order(FreeResources(snapshot.nodes), reached, queue)
        free_devices = snapshot.total_devices - sum(
            job.devices * job.rigid_size for job in queue if job.name in assigned
        )
        answers = {job.name: self._allocation(job, assigned.get(job.name, {}), updated, free_devices) for job in queue}
        return Decision(AllocationPlan(answers), updated)

    def sort_jobs(self, jobs: Mapping[str, JobInfo], memory: Memory) -> list[JobInfo]:
        """Returns all jobs in the order in which they may run."""
        first, second = memory.queues
        if self.is_gittins and len(memory.ended_service_s) >= MIN_GITTINS_SAMPLES:
            samples = sorted(memory.ended_service_s)
            index = {
                name: gittins_index(samples, attained_service(jobs[name], memory), self.threshold_s) for name in first
            }
            first = tuple(sorted(first, key=lambda name: -index[name]))
        return [jobs[name] for name in (*first, *second)]

    def _allocation(self, job: JobInfo, workers: WorkersByNode, memory: Memory, free_devices: int) -> Allocation:
        queue = 1 + (job.name in memory.queues[1])
        service = f"{attained_service(job, memory) / 3600:.2f} device-hours so far, queue {queue} of 2"
        if workers:
            return Allocation(workers, f"all of the {job.rigid_size} workers it requested: {service}")
        needs = f"needs {job.rigid_size * job.devices} devices, jobs ahead of it left {free_devices}"
        return Allocation({}, f"{'suspended' if job.workers else 'waits'}: {service}; {needs}")


def attained_service(job: JobInfo, memory: Memory) -> float:
    """Returns the device-seconds since the last promotion."""
    return memory.executed_s[job.name] * job.rigid_size * job.devices


def update_memory(snapshot: Snapshot, memory: Memory | None, threshold_s: float, promote_after: float) -> Memory:
    """Adds the time since the last decision, adds and drops jobs, and moves jobs between the queues."""
    previous = memory or Memory(snapshot.now)
    elapsed_s = max(snapshot.now - previous.decided_at, 0.0)
    executed, waited, total_service = {}, {}, {}
    for name, job in snapshot.jobs_by_name.items():
        ran_s = elapsed_s * bool(job.workers) if name in previous.executed_s else job.executed_s
        executed[name] = previous.executed_s.get(name, 0.0) + ran_s
        waited[name] = 0.0 if job.workers else previous.waited_s.get(name, 0.0) + elapsed_s
        total_service[name] = previous.total_service_s.get(name, 0.0) + ran_s * job.rigid_size * job.devices
    first = [name for name in previous.queues[0] if name in executed]
    second = [name for name in previous.queues[1] if name in executed]
    queued = {*first, *second}
    first += [job.name for job in sort_by_submission(snapshot.jobs) if job.name not in queued]
    for name in tuple(first):
        job = snapshot.jobs_by_name[name]
        if executed[name] * job.rigid_size * job.devices >= threshold_s:
            first.remove(name)
            second.append(name)
    for name in tuple(second) if promote_after else ():
        if not snapshot.jobs_by_name[name].workers and waited[name] >= promote_after * executed[name]:
            second.remove(name)
            first.append(name)
            executed[name] = waited[name] = 0.0
    ended_service = [
        total_service for name, total_service in sorted(previous.total_service_s.items()) if name not in executed
    ]
    return Memory(
        snapshot.now,
        (tuple(first), tuple(second)),
        executed,
        waited,
        total_service,
        (*previous.ended_service_s, *ended_service)[-MAX_GITTINS_SAMPLES:],
    )


def gittins_index(samples: Sequence[float], service: float, threshold: float) -> float:
    """sup over Δ of P(S − a ≤ Δ | S > a) / E[min(S − a, Δ) | S > a], Δ up to the end of the queue; `samples` sorted."""
    remaining_times = [sample - service for sample in samples[bisect_right(samples, service) :]]
    best, finished_sum = 0.0, 0.0
    for finished, remaining in enumerate(remaining_times, 1):
        if remaining > threshold - service:
            break
        finished_sum += remaining
        best = max(best, finished / (finished_sum + remaining * (len(remaining_times) - finished)))
    return best


def place_in_order(
    free: FreeResources, reached_jobs: Sequence[JobInfo], queue: Sequence[JobInfo]
) -> dict[str, WorkersByNode]:
    """Keeps running jobs, places other reached jobs on the emptiest nodes, then tries all remaining jobs in order."""
    assigned: dict[str, WorkersByNode] = {}
    reached_names = {job.name for job in reached_jobs}

    def assign(job: JobInfo, workers: WorkersByNode | None) -> None:
        if workers:
            assigned[job.name] = workers
            free.allocate(job, workers)

    for job in reached_jobs:
        if job.workers and job.worker_count == job.rigid_size and free.can_hold(job, job.workers):
            assign(job, job.workers if meets_constraints(free, job, job.workers) else None)
    for job in (*reached_jobs, *queue):
        if job.name not in assigned and free.free_devices:
            stays = (
                job.name not in reached_names and job.worker_count == job.rigid_size and free.can_hold(job, job.workers)
            )
            assign(job, job.workers if stays else place_gang_on_emptiest(free, job))
    return assigned


def place_gang_on_emptiest(free: FreeResources, job: JobInfo) -> WorkersByNode | None:
    """Uses the nodes with the most free devices first, the lowest name on a tie."""
    if job.constraints:
        return place_workers(free, job, job.rigid_size)
    node_order = {name: index for index, name in enumerate(free.nodes)}
    nodes = sorted(free.emptiest_nodes(job), key=lambda name: (-free.devices[name], node_order[name]))
    workers, remaining = {}, job.rigid_size
    for name in nodes:
        workers[name] = min(free.workers_that_fit(job, name), remaining)
        remaining -= workers[name]
        if not remaining:
            return workers
    return None


POLICY = Tiresias
