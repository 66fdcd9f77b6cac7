"""AntMan (OSDI'20): guaranteed jobs in whole gangs within their tenant's quota, opportunistic ones on what they leave.

Guaranteed jobs are admitted in order, each with all its workers, up to the quota of their queue. If one does not fit,
what is free is reserved for it, lent to opportunistic jobs meanwhile. Opportunistic jobs take idle devices, and else
share those of jobs that use less than `busy` of them; they stop when a guaranteed job needs the devices. A guaranteed
job that is not admitted runs as an opportunistic one until it is.

`quotas` reads like `ads=16/search=8`, in devices; a queue that is not named may have all.

Deviations: a job is converted at once, not after waiting long. Throttling of kernels and moving of tensors to the
host's memory are the workers' business: here a guest has the share of a device that its hosts do not use, and hosts
keep what they use. A guest takes all devices of its hosts, which have workers of as many devices, so that no part of
a device is left over. What a job uses is what was measured of it, not the last 10 s.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from elasticdl.errors import SpecError
from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.placement.assignment import sort_by_submission
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import meets_constraints, place_workers
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, WorkersByNode

MIN_HOST_SHARE = 0.05  # of a host that uses nothing at all


@dataclass(frozen=True)
class Memory:
    """Of one decision, for the next."""

    admitted: frozenset[str] = frozenset()  # guaranteed jobs that have their guarantee, or had it and lost a node
    guests: frozenset[str] = frozenset()  # of others' devices


@dataclass(frozen=True)
class AntMan:
    name: str = "antman"
    quotas: str = ""
    max_host_use: float = 0.8
    is_rigid: bool = True
    interval_s: float = 60.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        queue = sort_by_submission(snapshot.jobs)
        floor = _AntManPlacement(FreeResources(snapshot.nodes), {}, {}, {})
        before = memory or _guess_memory(queue)
        self._admit(floor, queue, before)
        admitted = frozenset(floor.allocated)
        for job in queue:
            if job.name not in admitted | before.guests:
                floor.keep(job)
        for job in queue:
            if job.name not in floor.allocated and floor.free.free_devices:
                floor.assign(job, place_workers(floor.free, job, job.rigid_size))
        whole = [job for job in queue if job.name in floor.allocated]
        for job in queue:
            if job.name not in floor.allocated and job.may_share:
                floor.share_devices(job, [host for host in whole if host.device_use < self.max_host_use])
        guests = frozenset(floor.allocated) - {job.name for job in whole}
        # Who lost its nodes stays first in line.
        kept = Memory(admitted | before.admitted & snapshot.jobs_by_name.keys(), guests)
        return Decision(AllocationPlan({job.name: _allocation(job, floor, admitted) for job in queue}), kept)

    def _admit(self, floor: _AntManPlacement, queue: list[JobInfo], before: Memory) -> None:
        quotas, used = parse_quotas(self.quotas), Counter[str]()
        head: JobInfo | None = None
        # Others are stopped only where there is no idle place.
        others = [job for job in queue if job.workers and job.name not in before.admitted | before.guests]
        for job in sorted(queue, key=lambda job: job.name not in before.admitted):
            need = job.rigid_size * job.devices
            if not job.is_guaranteed:
                continue
            if used[job.queue] + need > quotas.get(job.queue, need + used[job.queue]):
                floor.waiting_reasons[job.name] = (
                    f"its queue {job.queue!r} has {used[job.queue]} of {quotas[job.queue]} devices"
                )
            elif head:
                floor.waiting_reasons[job.name] = (
                    f"devices are reserved for {head.name}, which needs {head.rigid_size} workers"
                )
            elif floor.keep(job) or floor.assign(job, _place_on_idle_devices(floor, job, others)):
                used[job.queue] += need
            else:
                head = job
                floor.waiting_reasons[job.name] = (
                    f"what is free is reserved for it until it has all of its {job.rigid_size} workers"
                )


@dataclass
class _AntManPlacement:
    free: FreeResources
    allocated: dict[str, WorkersByNode]
    shares: dict[str, float]
    waiting_reasons: dict[str, str]  # a guaranteed job is not admitted

    def assign(self, job: JobInfo, workers: WorkersByNode | None) -> bool:
        if workers:
            self.allocated[job.name] = workers
            self.free.allocate(job, workers)
        return bool(workers)

    def keep(self, job: JobInfo) -> bool:
        if job.worker_count != job.rigid_size or not self.free.can_hold(job, job.workers):
            return False
        return meets_constraints(self.free, job, job.workers) and self.assign(job, job.workers)

    def share_devices(self, guest: JobInfo, hosts: list[JobInfo]) -> None:
        """The guest on all devices of some hosts, those first that use the least."""
        chosen: list[JobInfo] = []
        there: Counter[str] = Counter()
        for host in sorted(hosts, key=lambda host: host.device_use):
            is_free = host.may_share and host.name not in self.shares and host.devices == guest.devices
            if is_free and there.total() + host.rigid_size <= guest.rigid_size:
                chosen.append(host)
                there.update(self.allocated[host.name])
        if there.total() != guest.rigid_size:
            return
        rest = max(*(host.device_use for host in chosen), MIN_HOST_SHARE)
        for host in chosen:
            self.free.release(host, self.allocated[host.name])
            self.free.allocate(host, self.allocated[host.name], rest)
        if self.free.can_hold(guest, there, 1 - rest) and meets_constraints(self.free, guest, there):
            self.free.allocate(guest, there, 1 - rest)
            self.allocated[guest.name] = dict(there)
            self.shares |= {guest.name: 1 - rest, **{host.name: rest for host in chosen}}
            return
        for host in chosen:
            self.free.release(host, self.allocated[host.name], rest)
            self.free.allocate(host, self.allocated[host.name])


def _guess_memory(queue: list[JobInfo]) -> Memory:
    """If nothing is remembered: who is guaranteed and has all is admitted, who shares is a guest."""
    has_all = frozenset(
        job.name for job in queue if job.is_guaranteed and job.worker_count == job.rigid_size and job.share == 1
    )
    return Memory(has_all, frozenset(job.name for job in queue if job.workers and job.share < 1))


def parse_quotas(quotas: str) -> dict[str, int]:
    """Devices by queue."""
    found = {}
    for part in filter(None, quotas.split("/")):
        queue, equals, devices = part.rpartition("=")
        if not equals or not devices.isdigit():
            raise SpecError(f"--policy antman: quotas are like ads=16/search=8, received {part!r}")
        found[queue] = int(devices)
    return found


def _place_on_idle_devices(floor: _AntManPlacement, job: JobInfo, others: list[JobInfo]) -> WorkersByNode | None:
    """Where nobody is, if there is such a place."""
    room, taken = floor.free, []
    for other in others:
        if other is not job and other.name not in floor.allocated and room.can_hold(other, other.workers):
            room.allocate(other, other.workers)
            taken.append(other)
    found = place_workers(room, job, job.rigid_size)
    for other in taken:
        room.release(other, other.workers)
    return found or place_workers(room, job, job.rigid_size)


def _allocation(job: JobInfo, floor: _AntManPlacement, admitted: frozenset[str]) -> Allocation:
    workers, share = floor.allocated.get(job.name, {}), floor.shares.get(job.name, 1.0)
    what = f"{job.rigid_size} workers" if share == 1 else f"{job.rigid_size} workers with {share:.0%} of their devices"
    if job.name in admitted:
        return Allocation(workers, f"{what}, guaranteed until it ends", share)
    why = f" ({floor.waiting_reasons[job.name]})" if job.name in floor.waiting_reasons else ""
    if workers:
        return Allocation(workers, f"{what}, while nobody who is guaranteed needs them{why}", share)
    return Allocation({}, f"waits: no {job.rigid_size * job.devices} devices are idle, nor used little{why}")


POLICY = AntMan
