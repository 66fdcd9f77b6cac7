"""Tiresias (NSDI'19): least attained service in two queues, or the Gittins index of the first; whole gangs.

Service is devices times seconds that a job ran. A job starts in the first queue and goes to the end of the second
when its service reaches `threshold_s`. Queues are walked in order; a job runs if what it asked for is no more than
what is left, counted over all nodes; else the next is tried. Who ran and is not reached is suspended. Who runs stays
where it is; others take the nodes with the most free devices first.

2D-LAS: first in, first out within a queue. 2D-Gittins: the first queue by index, the greatest first, from the service
of jobs that ended (at least `MANY` of them, else as LAS); the second stays first in, first out.

Deviations. The threshold of 57,600 device-seconds, decisions every 60 s and no promotion are those of Pollux's port,
as is that time is counted from decision to decision. `promote`=8 promotes a job that waited 8 times as long as it ran
(0: never), as vodascheduler does. Gittins's E[min(S − a, Δ)] is the paper's: the released simulator sums S where
S − a is meant; Δ is any up to the end of the queue, not that alone. A job's service is known as of the last decision
before it ended. Placement by skew of tensors is left out: no job declares it. A job that was reached but whose workers
fit nowhere (several devices each, other resources, kinds) waits, and then jobs that were not reached are tried.
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

MIN_GITTINS_SAMPLES = 10  # jobs that ended, before their service says anything
MAX_GITTINS_SAMPLES = 1000  # of them


@dataclass(frozen=True)
class Memory:
    """Of one decision, for the next."""

    decided_at: float = 0.0
    queues: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    executed_s: Mapping[str, float] = field(default_factory=dict)  # since it was promoted last
    waited_s: Mapping[str, float] = field(default_factory=dict)  # since it ran last
    total_service_s: Mapping[str, float] = field(default_factory=dict)  # device-seconds of a job, promoted or not
    ended_service_s: tuple[float, ...] = ()  # device-seconds of the jobs that ended last


@dataclass(frozen=True)
class Tiresias:
    name: str = "tiresias"
    threshold_s: float = 57_600.0  # device-seconds
    promote_after: float = 0.0  # times that a job waits as long as it ran; 0: never
    is_gittins: bool = False
    is_rigid: bool = True
    interval_s: float = 60.0
    decides_on_events: bool = False
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        kept = update_memory(snapshot, memory, self.threshold_s, self.promote_after)
        line = self.sort_jobs(snapshot.jobs_by_name, kept)
        left = snapshot.total_devices
        chosen: list[JobInfo] = []
        for job in line:
            if job.rigid_size * job.devices <= left:
                left -= job.rigid_size * job.devices
                chosen.append(job)
        given = place_in_order(FreeResources(snapshot.nodes), chosen, line)
        free = snapshot.total_devices - sum(job.devices * job.rigid_size for job in line if job.name in given)
        answers = {job.name: self._allocation(job, given.get(job.name, {}), kept, free) for job in line}
        return Decision(AllocationPlan(answers), kept)

    def sort_jobs(self, jobs: Mapping[str, JobInfo], memory: Memory) -> list[JobInfo]:
        """Everybody, in the order they may run."""
        first, second = memory.queues
        if self.is_gittins and len(memory.ended_service_s) >= MIN_GITTINS_SAMPLES:
            samples = sorted(memory.ended_service_s)
            index = {
                name: gittins_index(samples, attained_service(jobs[name], memory), self.threshold_s) for name in first
            }
            first = tuple(sorted(first, key=lambda name: -index[name]))
        return [jobs[name] for name in (*first, *second)]

    def _allocation(self, job: JobInfo, workers: WorkersByNode, memory: Memory, free: int) -> Allocation:
        queue = 1 + (job.name in memory.queues[1])
        had = f"{attained_service(job, memory) / 3600:.2f} device-hours so far, queue {queue} of 2"
        if workers:
            return Allocation(workers, f"all of the {job.rigid_size} workers asked for: {had}")
        why = f"needs {job.rigid_size * job.devices} devices, those before it left {free}"
        return Allocation({}, f"{'suspended' if job.workers else 'waits'}: {had}; {why}")


def attained_service(job: JobInfo, memory: Memory) -> float:
    """Device-seconds, since it was promoted last."""
    return memory.executed_s[job.name] * job.rigid_size * job.devices


def update_memory(snapshot: Snapshot, memory: Memory | None, threshold_s: float, promote: float) -> Memory:
    """What is known now: time went on for who ran and who waited, jobs came, ended and changed queues."""
    before = memory or Memory(snapshot.now)
    passed_s = max(snapshot.now - before.decided_at, 0.0)
    executed, waited, total = {}, {}, {}
    for name, job in snapshot.jobs_by_name.items():
        ran_s = passed_s * bool(job.workers) if name in before.executed_s else job.executed_s
        executed[name] = before.executed_s.get(name, 0.0) + ran_s
        waited[name] = 0.0 if job.workers else before.waited_s.get(name, 0.0) + passed_s
        total[name] = before.total_service_s.get(name, 0.0) + ran_s * job.rigid_size * job.devices
    first = [name for name in before.queues[0] if name in executed]
    second = [name for name in before.queues[1] if name in executed]
    known = {*first, *second}
    first += [job.name for job in sort_by_submission(snapshot.jobs) if job.name not in known]
    for name in tuple(first):
        job = snapshot.jobs_by_name[name]
        if executed[name] * job.rigid_size * job.devices >= threshold_s:
            first.remove(name)
            second.append(name)
    for name in tuple(second) if promote else ():
        if not snapshot.jobs_by_name[name].workers and waited[name] >= promote * executed[name]:
            second.remove(name)
            first.append(name)
            executed[name] = waited[name] = 0.0
    ended = [total for name, total in sorted(before.total_service_s.items()) if name not in executed]
    return Memory(
        snapshot.now,
        (tuple(first), tuple(second)),
        executed,
        waited,
        total,
        (*before.ended_service_s, *ended)[-MAX_GITTINS_SAMPLES:],
    )


def gittins_index(samples: Sequence[float], service: float, most: float) -> float:
    """sup over Δ of P(S − a ≤ Δ | S > a) / E[min(S − a, Δ) | S > a], Δ up to the end of the queue; samples sorted."""
    above = [sample - service for sample in samples[bisect_right(samples, service) :]]
    best, passed = 0.0, 0.0
    for done, left in enumerate(above, 1):
        if left > most - service:
            break
        passed += left
        best = max(best, done / (passed + left * (len(above) - done)))
    return best


def place_in_order(room: FreeResources, chosen: Sequence[JobInfo], line: Sequence[JobInfo]) -> dict[str, WorkersByNode]:
    """Those who run stay, others of the chosen take the emptiest nodes; then all others are tried, in line."""
    given: dict[str, WorkersByNode] = {}
    reached = {job.name for job in chosen}

    def give(job: JobInfo, workers: WorkersByNode | None) -> None:
        if workers:
            given[job.name] = workers
            room.allocate(job, workers)

    for job in chosen:
        if job.workers and job.worker_count == job.rigid_size and room.can_hold(job, job.workers):
            give(job, job.workers if meets_constraints(room, job, job.workers) else None)
    for job in (*chosen, *line):
        if job.name not in given and room.free_devices:
            stays = job.name not in reached and job.worker_count == job.rigid_size and room.can_hold(job, job.workers)
            give(job, job.workers if stays else place_gang_on_emptiest(room, job))
    return given


def place_gang_on_emptiest(room: FreeResources, job: JobInfo) -> WorkersByNode | None:
    """The nodes with the most free devices first, the lowest name on a tie."""
    if job.constraints:
        return place_workers(room, job, job.rigid_size)
    order = {name: index for index, name in enumerate(room.nodes)}
    found = sorted(room.emptiest_nodes(job), key=lambda name: (-room.devices[name], order[name]))
    chosen, rest = {}, job.rigid_size
    for name in found:
        chosen[name] = min(room.workers_that_fit(job, name), rest)
        rest -= chosen[name]
        if not rest:
            return chosen
    return None


POLICY = Tiresias
