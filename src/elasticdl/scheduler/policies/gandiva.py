"""Gandiva (OSDI'18): time slices of a minute, packing of two jobs on a device, migration, and growth when no job waits.

- Affinity: a new job goes to a node with jobs of its size, else to an empty node, else to any free devices.
- Time slices: if not all jobs fit, those with the fewest turns run in each slice of `slice_s`. A job returns to its
  previous nodes if they are free, and moves otherwise.
- Packing: while jobs wait, two jobs that may share devices and use little of them are packed on the same devices.
- Migration: when a job has left, distributed jobs are gathered on fewer nodes, and the few jobs of almost empty nodes
  move elsewhere.
- Grow and shrink: when no job has waited for a while, elastic jobs grow on their node; they shrink as soon as a job
  waits.

Deviations:
- Slices are the cluster's instead of each server's, and all have the same length.
- Packing is decided by the measured use of devices (two jobs that need at most one device together) and lasts for the
  slice; Gandiva tries it and compares the time of mini-batches. Only jobs with equal numbers of devices are paired.
- Migrations are not weighed against their cost; Gandiva's cost was 1 to 3 s.
- A waiting elastic job starts with fewer workers than it requested if only those fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.placement.assignment import place_at_most, sort_by_submission, with_workers
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import meets_constraints, place_workers, resize_in_place, shrink_workers
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot, WorkersByNode


@dataclass(frozen=True)
class Memory:
    """What one decision leaves for the next."""

    turn: int = -1
    turns_by_job: Mapping[str, int] = field(default_factory=dict)  # turns each job has had
    ran_this_turn: frozenset[str] = frozenset()  # jobs that ran in this turn
    last_workers: Mapping[str, WorkersByNode] = field(default_factory=dict)  # each job's most recent workers
    host_by_guest: Mapping[str, str] = field(default_factory=dict)  # packed guests of this turn
    idle_queue_since: float | None = None  # since when no job waits


@dataclass(frozen=True)
class Gandiva:
    name: str = "gandiva"
    slice_s: float = 60.0
    grow_after_s: float = 60.0  # with no waiting job
    empty_share: float = 0.75  # share of free devices above which a node is cleared
    is_rigid: bool = False
    interval_s: float = 60.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        queue = sort_by_submission(snapshot.jobs)
        previous = _update_memory(memory or Memory(), queue)
        turn = int(snapshot.now // self.slice_s)
        is_same_turn = turn == previous.turn
        host_by_guest = dict(previous.host_by_guest) if is_same_turn else {}
        placement = GandivaPlacement(snapshot.nodes)
        base_sizes = {job.name: _base_size(placement, job) for job in queue}

        turn_order = sorted(
            (job for job in queue if job.name not in host_by_guest), key=lambda job: previous.turns_by_job[job.name]
        )
        staying = {
            job.name
            for job in turn_order
            if is_same_turn
            and job.name in previous.ran_this_turn
            and placement.keep(job, previous.last_workers[job.name], base_sizes[job.name])
        }
        placement.assign_all([job for job in turn_order if job.name not in staying], previous.last_workers, base_sizes)
        if memory is not None and memory.turns_by_job.keys() - previous.turns_by_job.keys():
            movable = [job for job in queue if job.name not in host_by_guest.values()]
            placement.consolidate(movable)
            placement.clear_nodes(movable, self.empty_share)
        placement.fill_to_base_size(turn_order, base_sizes)

        host_by_guest = _pack_guests(placement, queue, host_by_guest, base_sizes)
        waiting = [job for job in queue if job.name not in placement.allocated]
        idle_queue_since: float | None = None
        if not waiting and not host_by_guest:
            idle_queue_since = snapshot.now if previous.idle_queue_since is None else previous.idle_queue_since
        if idle_queue_since is not None and snapshot.now - idle_queue_since >= self.grow_after_s:
            placement.grow_on_node(queue)

        already_counted = previous.ran_this_turn if is_same_turn else frozenset()
        updated = Memory(
            turn,
            {
                name: turns + (name in placement.allocated and name not in already_counted)
                for name, turns in previous.turns_by_job.items()
            },
            frozenset(placement.allocated),
            {name: placement.allocated.get(name, home) for name, home in previous.last_workers.items()},
            host_by_guest,
            idle_queue_since,
        )
        answers = {job.name: _allocation(job, placement, updated, base_sizes[job.name], len(waiting)) for job in queue}
        return Decision(AllocationPlan(answers), updated)


def _update_memory(memory: Memory, queue: list[JobInfo]) -> Memory:
    """Drops jobs that ended. A new job starts with the fewest turns of any job: it runs soon but catches up nothing."""
    names = {job.name for job in queue}
    min_turns = min((turns for name, turns in memory.turns_by_job.items() if name in names), default=0)
    return Memory(
        memory.turn,
        {job.name: memory.turns_by_job.get(job.name, min_turns) for job in queue},
        memory.ran_this_turn & names,
        {job.name: job.workers or memory.last_workers.get(job.name, {}) for job in queue},
        {guest: host for guest, host in memory.host_by_guest.items() if {guest, host} <= names},
        memory.idle_queue_since,
    )


def _base_size(placement: GandivaPlacement, job: JobInfo) -> int:
    """Returns the requested size, as far as it is allowed and could ever fit."""
    return job.max_size_up_to(min(job.rigid_size, placement.free.total_workers_that_fit(job))) or job.min_size


def _pack_guests(
    placement: GandivaPlacement, queue: list[JobInfo], previous: Mapping[str, str], base_sizes: Mapping[str, int]
) -> dict[str, str]:
    """Returns the host of each guest: those of this turn, and new ones, jobs with the lowest use first."""
    jobs = {job.name: job for job in queue}
    host_by_guest = {
        guest: host
        for guest, host in previous.items()
        if jobs[guest].allows_size(size := sum(placement.allocated.get(host, {}).values()))
        and placement.pack_pair(jobs[guest], jobs[host], size)
    }
    shareable = sorted((job for job in queue if job.may_share), key=lambda job: job.device_use)
    for guest in shareable:
        if guest.name in placement.allocated or guest.name in host_by_guest:
            continue
        for host in shareable:
            if placement.pack_pair(guest, host, base_sizes[guest.name]):
                host_by_guest[guest.name] = host.name
                break
    return host_by_guest


def _allocation(job: JobInfo, placement: GandivaPlacement, memory: Memory, base_size: int, waiting: int) -> Allocation:
    workers = placement.allocated.get(job.name, {})
    count, turns = sum(workers.values()), memory.turns_by_job[job.name]
    share = placement.shares.get(job.name, 1.0)
    if not workers:
        return Allocation({}, f"waits for its turn after {turns} so far; {waiting} jobs wait, all take turns")
    if share < 1:
        partner = memory.host_by_guest.get(job.name) or next(
            a for a, b in memory.host_by_guest.items() if b == job.name
        )
        return Allocation(workers, f"{count} workers, packed with {partner} on the same devices ({share:.0%})", share)
    if count > base_size:
        return Allocation(workers, f"{count} workers, {count - base_size} more than requested: no job waits")
    if waiting:
        return Allocation(workers, f"{count} workers for turn {turns}; {waiting} jobs wait for theirs")
    return Allocation(workers, f"{count} workers: all jobs fit, so there are no turns")


class GandivaPlacement:
    """Allocations and shares while a decision is made: affinity, migration, growth and packing."""

    def __init__(self, nodes: Iterable[NodeInfo]) -> None:
        self.free = FreeResources(nodes)
        self.allocated: dict[str, WorkersByNode] = {}
        self.shares: dict[str, float] = {}
        self._jobs_by_size: dict[str, Counter[int]] = {
            name: Counter() for name in self.free.nodes
        }  # by node: how many jobs of each size

    def assign(self, job: JobInfo, workers: WorkersByNode) -> None:
        self.unassign(job)
        self.free.allocate(job, workers)
        self.allocated[job.name] = workers
        for name in workers:
            self._jobs_by_size[name][sum(workers.values()) * job.devices] += 1

    def unassign(self, job: JobInfo) -> None:
        workers = self.allocated.pop(job.name, {})
        self.free.release(job, workers)
        for name in workers:
            self._jobs_by_size[name][sum(workers.values()) * job.devices] -= 1

    def keep(self, job: JobInfo, previous: WorkersByNode, max_workers: int) -> bool:
        """Keeps a job on its previous nodes with at most `max_workers`; returns whether that is possible."""
        workers = shrink_workers(previous, min(sum(previous.values()), max_workers))
        if not workers or not job.allows_size(sum(workers.values())) or not self.free.can_hold(job, workers):
            return False
        if meets_constraints(self.free, job, workers):
            self.assign(job, workers)
        return job.name in self.allocated

    def assign_all(
        self, turn_order: list[JobInfo], previous_workers: Mapping[str, WorkersByNode], base_sizes: Mapping[str, int]
    ) -> None:
        """Places jobs in the order of their turns; a job returns to its previous nodes if they are free."""
        tentative = FreeResources(self.free.remaining_nodes())
        trial: dict[str, WorkersByNode] = {}
        for job in turn_order:
            at_home = with_workers(job, previous_workers.get(job.name, {}))
            if workers := place_at_most(tentative, at_home, base_sizes[job.name]):
                tentative.allocate(job, workers)
                trial[job.name] = workers
        sizes = {name: sum(workers.values()) for name, workers in trial.items()}
        admitted = [job for job in turn_order if job.name in trial]
        moving = [
            job
            for job in admitted
            if not self._place_in_same_nodes(job, previous_workers.get(job.name, {}), sizes[job.name])
        ]
        for job in moving:
            placed = self._place_by_affinity(job, sizes[job.name]) or place_workers(self.free, job, sizes[job.name])
            if not placed:
                break
            self.assign(job, placed)
        if any(job.name not in self.allocated for job in admitted):
            for job in admitted:
                self.unassign(job)
            for job in admitted:
                self.assign(job, trial[job.name])

    def fill_to_base_size(self, jobs: Iterable[JobInfo], base_sizes: Mapping[str, int]) -> None:
        """Gives free devices to jobs that have fewer workers than they requested."""
        for job in jobs:
            before = self.allocated.get(job.name, {})
            if not self.free.free_devices or sum(before.values()) >= base_sizes[job.name]:
                continue
            self.unassign(job)
            if workers := place_at_most(self.free, with_workers(job, before), base_sizes[job.name]):
                self.assign(job, workers)

    def consolidate(self, jobs: Iterable[JobInfo]) -> None:
        """Gathers distributed jobs on fewer nodes."""
        for job in jobs:
            before = self.allocated.get(job.name, {})
            if len(before) < 2:
                continue
            self.unassign(job)
            gathered = place_workers(self.free, job, sum(before.values()))
            self.assign(job, gathered if gathered is not None and len(gathered) < len(before) else before)

    def clear_nodes(self, jobs: list[JobInfo], empty_share: float) -> None:
        """Moves the few jobs of almost empty nodes to fuller ones."""
        free = self.free
        almost_empty = {
            name: free.devices[name] for name, node in free.nodes.items() if self._is_almost_empty(node, empty_share)
        }
        for node in sorted(almost_empty, key=lambda name: -almost_empty[name]):
            for job in jobs:
                if set(self.allocated.get(job.name, {})) != {node} or job.constraints:
                    continue
                count = self.allocated[job.name][node]
                fuller = (
                    name
                    for name in free.best_fit_nodes(job, count)
                    if free.devices[name] < min(free.devices[node], free.nodes[name].devices)
                )
                if (target := next(fuller, None)) is not None:
                    self.assign(job, {target: count})

    def grow_on_node(self, jobs: Iterable[JobInfo]) -> None:
        """Grows jobs that are on one node into its free devices."""
        for job in jobs:
            workers = self.allocated.get(job.name, {})
            if len(workers) == 1 and not job.constraints:
                [(node, count)] = workers.items()
                max_workers = job.max_size_up_to(count + self.free.workers_that_fit(job, node))
                if max_workers > count:
                    self.assign(job, {node: max_workers})

    def pack_pair(self, guest: JobInfo, host: JobInfo, size: int) -> bool:
        """Puts the guest on the host's devices, each with a share; returns whether that is possible."""
        workers = self.allocated.get(host.name, {})
        if host.name in self.shares or not (guest.may_share and host.may_share):
            return False
        combined_use = guest.device_use + host.device_use
        if not workers or combined_use > 1 or guest.devices != host.devices or sum(workers.values()) != size:
            return False
        share = min(max(guest.device_use / combined_use, 0.05), 0.95) if combined_use else 0.5
        self.free.release(host, workers)
        self.free.allocate(host, workers, 1 - share)
        if not self.free.can_hold(guest, workers, share) or not meets_constraints(self.free, guest, workers):
            self.free.release(host, workers, 1 - share)
            self.free.allocate(host, workers)
            return False
        self.free.allocate(guest, workers, share)
        self.allocated[guest.name] = workers
        self.shares |= {host.name: 1 - share, guest.name: share}
        return True

    def _place_in_same_nodes(self, job: JobInfo, previous: WorkersByNode, size: int) -> bool:
        if not previous or not self.free.can_hold(job, shrink_workers(previous, size)):
            return False
        workers = resize_in_place(self.free, with_workers(job, previous), size)
        if workers:
            self.assign(job, workers)
        return bool(workers)

    def _place_by_affinity(self, job: JobInfo, size: int) -> WorkersByNode | None:
        """Returns the least loaded node with jobs of the same size, else an empty node, else None."""
        if job.constraints:
            return None
        fitting = list(self.free.best_fit_nodes(job, size))
        same_size = [name for name in fitting if self._jobs_by_size[name][size * job.devices]]
        if same_size:
            return {max(same_size, key=lambda name: self.free.devices[name]): size}
        empty = next((name for name in fitting if self.free.devices[name] == self.free.nodes[name].devices), None)
        return {empty: size} if empty is not None else None

    def _is_almost_empty(self, node: NodeInfo, share: float) -> bool:
        return share * node.devices <= self.free.devices[node.name] < node.devices


POLICY = Gandiva
