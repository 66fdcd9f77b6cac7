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
        placement = _AntManPlacement(FreeResources(snapshot.nodes), {}, {}, {})
        previous = memory or _guess_memory(queue)
        self._admit_guaranteed(placement, queue, previous)
        admitted = frozenset(placement.allocated)
        for job in queue:
            if job.name not in admitted | previous.guests:
                placement.keep(job)
        for job in queue:
            if job.name not in placement.allocated and placement.free.free_devices:
                placement.assign(job, place_workers(placement.free, job, job.rigid_size))
        hosts = [job for job in queue if job.name in placement.allocated]
        for job in queue:
            if job.name not in placement.allocated and job.may_share:
                placement.share_devices(job, [host for host in hosts if host.device_use < self.max_host_use])
        guests = frozenset(placement.allocated) - {job.name for job in hosts}
        # Who lost its nodes stays first in line.
        new_memory = Memory(admitted | previous.admitted & snapshot.jobs_by_name.keys(), guests)
        return Decision(AllocationPlan({job.name: _allocation(job, placement, admitted) for job in queue}), new_memory)

    def _admit_guaranteed(self, placement: _AntManPlacement, queue: list[JobInfo], previous: Memory) -> None:
        quotas, used_by_queue = parse_quotas(self.quotas), Counter[str]()
        blocked: JobInfo | None = None
        # Others are stopped only where there is no idle place.
        running_unadmitted = [
            job for job in queue if job.workers and job.name not in previous.admitted | previous.guests
        ]
        for job in sorted(queue, key=lambda job: job.name not in previous.admitted):
            needed_devices = job.rigid_size * job.devices
            if not job.is_guaranteed:
                continue
            if used_by_queue[job.queue] + needed_devices > quotas.get(
                job.queue, needed_devices + used_by_queue[job.queue]
            ):
                placement.waiting_reasons[job.name] = (
                    f"its queue {job.queue!r} has {used_by_queue[job.queue]} of {quotas[job.queue]} devices"
                )
            elif blocked:
                placement.waiting_reasons[job.name] = (
                    f"devices are reserved for {blocked.name}, which needs {blocked.rigid_size} workers"
                )
            elif placement.keep(job) or placement.assign(
                job, _place_on_idle_devices(placement, job, running_unadmitted)
            ):
                used_by_queue[job.queue] += needed_devices
            else:
                blocked = job
                placement.waiting_reasons[job.name] = (
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
        chosen_hosts: list[JobInfo] = []
        workers: Counter[str] = Counter()
        for host in sorted(hosts, key=lambda host: host.device_use):
            is_free = host.may_share and host.name not in self.shares and host.devices == guest.devices
            if is_free and workers.total() + host.rigid_size <= guest.rigid_size:
                chosen_hosts.append(host)
                workers.update(self.allocated[host.name])
        if workers.total() != guest.rigid_size:
            return
        host_share = max(*(host.device_use for host in chosen_hosts), MIN_HOST_SHARE)
        for host in chosen_hosts:
            self.free.release(host, self.allocated[host.name])
            self.free.allocate(host, self.allocated[host.name], host_share)
        if self.free.can_hold(guest, workers, 1 - host_share) and meets_constraints(self.free, guest, workers):
            self.free.allocate(guest, workers, 1 - host_share)
            self.allocated[guest.name] = dict(workers)
            self.shares |= {guest.name: 1 - host_share, **{host.name: host_share for host in chosen_hosts}}
            return
        for host in chosen_hosts:
            self.free.release(host, self.allocated[host.name], host_share)
            self.free.allocate(host, self.allocated[host.name])


def _guess_memory(queue: list[JobInfo]) -> Memory:
    """If nothing is remembered: who is guaranteed and has all is admitted, who shares is a guest."""
    has_all = frozenset(
        job.name for job in queue if job.is_guaranteed and job.worker_count == job.rigid_size and job.share == 1
    )
    return Memory(has_all, frozenset(job.name for job in queue if job.workers and job.share < 1))


def parse_quotas(quotas: str) -> dict[str, int]:
    """Devices by queue."""
    devices_by_queue = {}
    for part in filter(None, quotas.split("/")):
        queue, equals, devices = part.rpartition("=")
        if not equals or not devices.isdigit():
            raise SpecError(f"--policy antman: quotas are like ads=16/search=8, received {part!r}")
        devices_by_queue[queue] = int(devices)
    return devices_by_queue


def _place_on_idle_devices(placement: _AntManPlacement, job: JobInfo, others: list[JobInfo]) -> WorkersByNode | None:
    """Where nobody is, if there is such a place."""
    free, held = placement.free, []
    for occupant in others:
        if (
            occupant is not job
            and occupant.name not in placement.allocated
            and free.can_hold(occupant, occupant.workers)
        ):
            free.allocate(occupant, occupant.workers)
            held.append(occupant)
    workers = place_workers(free, job, job.rigid_size)
    for occupant in held:
        free.release(occupant, occupant.workers)
    return workers or place_workers(free, job, job.rigid_size)


def _allocation(job: JobInfo, placement: _AntManPlacement, admitted: frozenset[str]) -> Allocation:
    workers, share = placement.allocated.get(job.name, {}), placement.shares.get(job.name, 1.0)
    description = (
        f"{job.rigid_size} workers" if share == 1 else f"{job.rigid_size} workers with {share:.0%} of their devices"
    )
    if job.name in admitted:
        return Allocation(workers, f"{description}, guaranteed until it ends", share)
    reason = f" ({placement.waiting_reasons[job.name]})" if job.name in placement.waiting_reasons else ""
    if workers:
        return Allocation(workers, f"{description}, while nobody who is guaranteed needs them{reason}", share)
    return Allocation({}, f"waits: no {job.rigid_size * job.devices} devices are idle, nor used little{reason}")


POLICY = AntMan
