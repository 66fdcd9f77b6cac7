"""Gandiva (OSDI'18): turns of a minute, two jobs packed on a device, moved together, and grown when nobody waits.

- A newcomer goes to a node with jobs of its size, else to an empty one, else to whatever is free (affinity).
- If not all fit, they take turns: each `slice_s` those run that had the fewest turns. In its turn a job goes back to
  where it was if that is free, and else moves.
- While some wait, two jobs that may share and use little are packed on the same devices.
- When a job left, others are moved: spread ones together, and the few that hold an almost empty node elsewhere.
- When nobody waited for a while, elastic jobs grow on the node they are on; they shrink as soon as somebody comes.

Deviations: turns are the cluster's, not each server's, and of equal weight. Packing is decided by the measured use of
devices (two that need no more than one device together) and lasts for the turn, where Gandiva tries it and compares
the time of mini-batches; it pairs jobs with equally many devices, so that no part of a device is left over. Moves
are not weighed against their cost: theirs was 1 to 3 s. An elastic job that waits starts with less than it asked for.
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
    """Of one decision, for the next."""

    turn: int = -1
    turns_by_job: Mapping[str, int] = field(default_factory=dict)  # that each job had
    ran_this_turn: frozenset[str] = frozenset()  # in this turn
    last_workers: Mapping[str, WorkersByNode] = field(default_factory=dict)  # where it was last
    host_by_guest: Mapping[str, str] = field(default_factory=dict)  # guests of this turn, and on whose devices they are
    idle_queue_since: float | None = None  # since when nobody waits


@dataclass(frozen=True)
class Gandiva:
    name: str = "gandiva"
    slice_s: float = 60.0
    grow_after_s: float = 60.0  # that nobody waited
    empty_share: float = 0.75  # of a node's devices free: it is worth moving the others away
    is_rigid: bool = False
    interval_s: float = 60.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        queue = sort_by_submission(snapshot.jobs)
        before = _update_memory(memory or Memory(), queue)
        turn = int(snapshot.now // self.slice_s)
        is_same = turn == before.turn
        pairs = dict(before.host_by_guest) if is_same else {}
        floor = GandivaPlacement(snapshot.nodes)
        bases = {job.name: _base_size(floor, job) for job in queue}

        line = sorted((job for job in queue if job.name not in pairs), key=lambda job: before.turns_by_job[job.name])
        stayed = {
            job.name
            for job in line
            if is_same
            and job.name in before.ran_this_turn
            and floor.keep(job, before.last_workers[job.name], bases[job.name])
        }
        floor.assign_all([job for job in line if job.name not in stayed], before.last_workers, bases)
        if memory is not None and memory.turns_by_job.keys() - before.turns_by_job.keys():
            still = [job for job in queue if job.name not in pairs.values()]
            floor.consolidate(still)
            floor.clear_nodes(still, self.empty_share)
        floor.fill_to_base_size(line, bases)

        pairs = _pack_guests(floor, queue, pairs, bases)
        waiting = [job for job in queue if job.name not in floor.allocated]
        calm_since = (
            None if waiting or pairs else snapshot.now if before.idle_queue_since is None else before.idle_queue_since
        )
        if calm_since is not None and snapshot.now - calm_since >= self.grow_after_s:
            floor.grow_on_node(queue)

        counted = before.ran_this_turn if is_same else frozenset()
        kept = Memory(
            turn,
            {
                name: turns + (name in floor.allocated and name not in counted)
                for name, turns in before.turns_by_job.items()
            },
            frozenset(floor.allocated),
            {name: floor.allocated.get(name, home) for name, home in before.last_workers.items()},
            pairs,
            calm_since,
        )
        answers = {job.name: _allocation(job, floor, kept, bases[job.name], len(waiting)) for job in queue}
        return Decision(AllocationPlan(answers), kept)


def _update_memory(memory: Memory, queue: list[JobInfo]) -> Memory:
    """With these jobs only. Who comes has had as few turns as anybody: it is early, yet has nothing to catch up."""
    names = {job.name for job in queue}
    fewest = min((turns for name, turns in memory.turns_by_job.items() if name in names), default=0)
    return Memory(
        memory.turn,
        {job.name: memory.turns_by_job.get(job.name, fewest) for job in queue},
        memory.ran_this_turn & names,
        {job.name: job.workers or memory.last_workers.get(job.name, {}) for job in queue},
        {guest: host for guest, host in memory.host_by_guest.items() if {guest, host} <= names},
        memory.idle_queue_since,
    )


def _base_size(floor: GandivaPlacement, job: JobInfo) -> int:
    """What it asked for, as far as it is allowed and could ever fit."""
    return job.max_size_up_to(min(job.rigid_size, floor.free.total_workers_that_fit(job))) or job.min_size


def _pack_guests(
    floor: GandivaPlacement, queue: list[JobInfo], pairs: Mapping[str, str], bases: Mapping[str, int]
) -> dict[str, str]:
    """Guests and hosts: those of this turn, and new ones, who uses the least first."""
    jobs = {job.name: job for job in queue}
    found = {
        guest: host
        for guest, host in pairs.items()
        if jobs[guest].allows_size(size := sum(floor.allocated.get(host, {}).values()))
        and floor.pack_pair(jobs[guest], jobs[host], size)
    }
    idle = sorted((job for job in queue if job.may_share), key=lambda job: job.device_use)
    for guest in idle:
        if guest.name in floor.allocated or guest.name in found:
            continue
        for host in idle:
            if floor.pack_pair(guest, host, bases[guest.name]):
                found[guest.name] = host.name
                break
    return found


def _allocation(job: JobInfo, floor: GandivaPlacement, memory: Memory, base: int, waiting: int) -> Allocation:
    workers = floor.allocated.get(job.name, {})
    count, turns = sum(workers.values()), memory.turns_by_job[job.name]
    share = floor.shares.get(job.name, 1.0)
    if not workers:
        return Allocation({}, f"waits for its turn, {turns} had so far; {waiting} jobs wait, all take turns")
    if share < 1:
        other = memory.host_by_guest.get(job.name) or next(a for a, b in memory.host_by_guest.items() if b == job.name)
        return Allocation(workers, f"{count} workers, packed with {other} on the same devices ({share:.0%})", share)
    if count > base:
        return Allocation(workers, f"{count} workers, {count - base} more than asked for: nobody waits for the node")
    if waiting:
        return Allocation(workers, f"{count} workers for its turn, number {turns}; {waiting} jobs wait for theirs")
    return Allocation(workers, f"{count} workers: all jobs fit, nobody takes turns")


POLICY = Gandiva


class GandivaPlacement:
    """The nodes while a decision is made: who sits where, and with which share of its devices."""

    def __init__(self, nodes: Iterable[NodeInfo]) -> None:
        self.free = FreeResources(nodes)
        self.allocated: dict[str, WorkersByNode] = {}
        self.shares: dict[str, float] = {}
        self._sizes: dict[str, Counter[int]] = {name: Counter() for name in self.free.nodes}  # jobs on it, by devices

    def assign(self, job: JobInfo, workers: WorkersByNode) -> None:
        self.unassign(job)
        self.free.allocate(job, workers)
        self.allocated[job.name] = workers
        for name in workers:
            self._sizes[name][sum(workers.values()) * job.devices] += 1

    def unassign(self, job: JobInfo) -> None:
        workers = self.allocated.pop(job.name, {})
        self.free.release(job, workers)
        for name in workers:
            self._sizes[name][sum(workers.values()) * job.devices] -= 1

    def keep(self, job: JobInfo, home: WorkersByNode, most: int) -> bool:
        """Seats it where it was, with no more than `most`; whether that is possible."""
        kept = shrink_workers(home, min(sum(home.values()), most))
        if not kept or not job.allows_size(sum(kept.values())) or not self.free.can_hold(job, kept):
            return False
        if meets_constraints(self.free, job, kept):
            self.assign(job, kept)
        return job.name in self.allocated

    def assign_all(self, line: list[JobInfo], homes: Mapping[str, WorkersByNode], bases: Mapping[str, int]) -> None:
        """Who is first in line has its seats first, but those whose seats are free go back to them."""
        scratch = FreeResources(self.free.remaining_nodes())
        tried: dict[str, WorkersByNode] = {}
        for job in line:
            home = with_workers(job, homes.get(job.name, {}))
            if seats := place_at_most(scratch, home, bases[job.name]):
                scratch.allocate(job, seats)
                tried[job.name] = seats
        sizes = {name: sum(workers.values()) for name, workers in tried.items()}
        chosen = [job for job in line if job.name in tried]
        rest = [job for job in chosen if not self._stays(job, homes.get(job.name, {}), sizes[job.name])]
        for job in rest:
            workers = self._near(job, sizes[job.name]) or place_workers(self.free, job, sizes[job.name])
            if not workers:
                break
            self.assign(job, workers)
        if any(job.name not in self.allocated for job in chosen):
            for job in chosen:
                self.unassign(job)
            for job in chosen:
                self.assign(job, tried[job.name])

    def fill_to_base_size(self, line: Iterable[JobInfo], bases: Mapping[str, int]) -> None:
        """Who has less than it asked for takes what is left."""
        for job in line:
            before = self.allocated.get(job.name, {})
            if not self.free.free_devices or sum(before.values()) >= bases[job.name]:
                continue
            self.unassign(job)
            if workers := place_at_most(self.free, with_workers(job, before), bases[job.name]):
                self.assign(job, workers)

    def consolidate(self, jobs: Iterable[JobInfo]) -> None:
        """Jobs that are spread are moved together."""
        for job in jobs:
            before = self.allocated.get(job.name, {})
            if len(before) < 2:
                continue
            self.unassign(job)
            found = place_workers(self.free, job, sum(before.values()))
            self.assign(job, found if found is not None and len(found) < len(before) else before)

    def clear_nodes(self, jobs: list[JobInfo], empty_share: float) -> None:
        """The few jobs of nodes that are almost empty move to fuller ones."""
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
                if (found := next(fuller, None)) is not None:
                    self.assign(job, {found: count})

    def grow_on_node(self, jobs: Iterable[JobInfo]) -> None:
        """Jobs on one node take what is left of it."""
        for job in jobs:
            workers = self.allocated.get(job.name, {})
            if len(workers) == 1 and not job.constraints:
                [(node, count)] = workers.items()
                most = job.max_size_up_to(count + self.free.workers_that_fit(job, node))
                if most > count:
                    self.assign(job, {node: most})

    def pack_pair(self, guest: JobInfo, host: JobInfo, size: int) -> bool:
        """Both on the host's devices, each with its part; whether it can be."""
        there = self.allocated.get(host.name, {})
        if host.name in self.shares or not (guest.may_share and host.may_share):
            return False
        together = guest.device_use + host.device_use
        if not there or together > 1 or guest.devices != host.devices or sum(there.values()) != size:
            return False
        share = min(max(guest.device_use / together, 0.05), 0.95) if together else 0.5
        self.free.release(host, there)
        self.free.allocate(host, there, 1 - share)
        if not self.free.can_hold(guest, there, share) or not meets_constraints(self.free, guest, there):
            self.free.release(host, there, 1 - share)
            self.free.allocate(host, there)
            return False
        self.free.allocate(guest, there, share)
        self.allocated[guest.name] = there
        self.shares |= {host.name: 1 - share, guest.name: share}
        return True

    def _stays(self, job: JobInfo, home: WorkersByNode, size: int) -> bool:
        if not home or not self.free.can_hold(job, shrink_workers(home, size)):
            return False
        found = resize_in_place(self.free, with_workers(job, home), size)
        if found:
            self.assign(job, found)
        return bool(found)

    def _near(self, job: JobInfo, size: int) -> WorkersByNode | None:
        """On one node with jobs of its size, the least loaded; else on an empty one."""
        if job.constraints:
            return None
        found = list(self.free.best_fit_nodes(job, size))
        alike = [name for name in found if self._sizes[name][size * job.devices]]
        if alike:
            return {max(alike, key=lambda name: self.free.devices[name]): size}
        empty = next((name for name in found if self.free.devices[name] == self.free.nodes[name].devices), None)
        return {empty: size} if empty is not None else None

    def _is_almost_empty(self, node: NodeInfo, share: float) -> bool:
        return share * node.devices <= self.free.devices[node.name] < node.devices
