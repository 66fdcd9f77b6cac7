"""AntMan (OSDI'20): guaranteed jobs in gangs within their tenant's quota, opportunistic jobs on the remaining devices.

Guaranteed jobs are admitted in order of submission, each with all its workers, up to the quota of their queue. If a job
does not fit, the free devices are reserved for it; opportunistic jobs may use them until then. Opportunistic jobs take
idle devices first, and otherwise share the devices of jobs that use less than `max_host_use` of them; they stop when a
guaranteed job needs the devices. A guaranteed job that is not admitted yet runs as an opportunistic one.

`quotas` gives devices by queue, `ads=16/search=8`. A queue without a quota may use all devices.

Deviations:
- A job is converted at once instead of after a long wait.
- Workers, not the scheduler, would throttle kernels and move tensors to the host's memory. Here a guest gets the share
  of a device that its hosts do not use.
- A guest takes all devices of its hosts, whose workers have as many devices as its own, so that no fraction is left.
- A job's use of its devices is what was measured so far, not in the last 10 s.
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

MIN_HOST_SHARE = 0.05  # for a host that does not use its devices


@dataclass(frozen=True)
class Memory:
    """What one decision leaves for the next."""

    admitted: frozenset[str] = frozenset()  # guaranteed jobs with their guarantee, also if they lost a node since
    guests: frozenset[str] = frozenset()  # jobs that share the devices of others


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
        # An admitted job that lost its nodes stays at the head of the queue.
        new_memory = Memory(admitted | previous.admitted & snapshot.jobs_by_name.keys(), guests)
        return Decision(AllocationPlan({job.name: _allocation(job, placement, admitted) for job in queue}), new_memory)

    def _admit_guaranteed(self, placement: _AntManPlacement, queue: list[JobInfo], previous: Memory) -> None:
        """Admits guaranteed jobs in order, admitted ones first; the first that does not fit blocks the later ones."""
        quotas, used_by_queue = parse_quotas(self.quotas), Counter[str]()
        blocked: JobInfo | None = None
        # Running jobs are stopped only if there are no idle devices.
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
                    f"the free devices are reserved for it until it has all of its {job.rigid_size} workers"
                )


@dataclass
class _AntManPlacement:
    """Allocations and shares while a decision is made."""

    free: FreeResources
    allocated: dict[str, WorkersByNode]
    shares: dict[str, float]
    waiting_reasons: dict[str, str]  # why a guaranteed job is not admitted

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
        """Places the guest on all devices of some hosts, those with the lowest use first."""
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
    """Without memory, guaranteed jobs with all their workers count as admitted, and jobs with a share as guests."""
    has_all = frozenset(
        job.name for job in queue if job.is_guaranteed and job.worker_count == job.rigid_size and job.share == 1
    )
    return Memory(has_all, frozenset(job.name for job in queue if job.workers and job.share < 1))


def parse_quotas(quotas: str) -> dict[str, int]:
    """Returns devices by queue."""
    devices_by_queue = {}
    for part in filter(None, quotas.split("/")):
        queue, equals, devices = part.rpartition("=")
        if not equals or not devices.isdigit():
            raise SpecError(f"--policy antman: expected quotas such as ads=16/search=8, received {part!r}")
        devices_by_queue[queue] = int(devices)
    return devices_by_queue


def _place_on_idle_devices(placement: _AntManPlacement, job: JobInfo, others: list[JobInfo]) -> WorkersByNode | None:
    """Places a job on devices that no other job has, if possible."""
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
        return Allocation(workers, f"{description}, until a guaranteed job needs them{reason}", share)
    return Allocation({}, f"waits: {job.rigid_size * job.devices} devices are neither idle nor little used{reason}")


POLICY = AntMan
