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

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.plan import Allocation, Plan
from elasticdl.scheduler.policies.gandiva_floor import Floor
from elasticdl.scheduler.settling import in_order
from elasticdl.scheduler.snapshot import Job, Snapshot, Workers


@dataclass(frozen=True)
class Memory:
    """Of one decision, for the next."""

    turn: int = -1
    turns: Mapping[str, int] = field(default_factory=dict)  # that each job had
    ran: frozenset[str] = frozenset()  # in this turn
    homes: Mapping[str, Workers] = field(default_factory=dict)  # where it was last
    pairs: Mapping[str, str] = field(default_factory=dict)  # guests of this turn, and on whose devices they are
    calm_since: float | None = None  # since when nobody waits


@dataclass(frozen=True)
class Gandiva:
    name: str = "gandiva"
    slice_s: float = 60.0
    grow_after_s: float = 60.0  # that nobody waited
    empty_share: float = 0.75  # of a node's devices free: it is worth moving the others away
    is_rigid: bool = False
    interval_s: float = 60.0
    asks_at_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        queue = in_order(snapshot.jobs)
        before = _cleaned(memory or Memory(), queue)
        turn = int(snapshot.now // self.slice_s)
        is_same = turn == before.turn
        pairs = dict(before.pairs) if is_same else {}
        floor = Floor(snapshot.nodes)
        bases = {job.name: _base(floor, job) for job in queue}

        line = sorted((job for job in queue if job.name not in pairs), key=lambda job: before.turns[job.name])
        stayed = {
            job.name
            for job in line
            if is_same and job.name in before.ran and floor.stay(job, before.homes[job.name], bases[job.name])
        }
        floor.seat_all([job for job in line if job.name not in stayed], before.homes, bases)
        if memory is not None and memory.turns.keys() - before.turns.keys():
            still = [job for job in queue if job.name not in pairs.values()]
            floor.gather(still)
            floor.clear(still, self.empty_share)
        floor.fill(line, bases)

        pairs = _packed(floor, queue, pairs, bases)
        waiting = [job for job in queue if job.name not in floor.given]
        calm_since = None if waiting or pairs else snapshot.now if before.calm_since is None else before.calm_since
        if calm_since is not None and snapshot.now - calm_since >= self.grow_after_s:
            floor.grow(queue)

        counted = before.ran if is_same else frozenset()
        kept = Memory(
            turn,
            {name: turns + (name in floor.given and name not in counted) for name, turns in before.turns.items()},
            frozenset(floor.given),
            {name: floor.given.get(name, home) for name, home in before.homes.items()},
            pairs,
            calm_since,
        )
        answers = {job.name: _answer(job, floor, kept, bases[job.name], len(waiting)) for job in queue}
        return Decision(Plan(answers), kept)


def _cleaned(memory: Memory, queue: list[Job]) -> Memory:
    """With these jobs only. Who comes has had as few turns as anybody: it is early, yet has nothing to catch up."""
    names = {job.name for job in queue}
    fewest = min((turns for name, turns in memory.turns.items() if name in names), default=0)
    return Memory(
        memory.turn,
        {job.name: memory.turns.get(job.name, fewest) for job in queue},
        memory.ran & names,
        {job.name: job.workers or memory.homes.get(job.name, {}) for job in queue},
        {guest: host for guest, host in memory.pairs.items() if {guest, host} <= names},
        memory.calm_since,
    )


def _base(floor: Floor, job: Job) -> int:
    """What it asked for, as far as it is allowed and could ever fit."""
    return job.largest(min(job.wish, floor.room.fits_in_all(job))) or job.least


def _packed(floor: Floor, queue: list[Job], pairs: Mapping[str, str], bases: Mapping[str, int]) -> dict[str, str]:
    """Guests and hosts: those of this turn, and new ones, who uses the least first."""
    jobs = {job.name: job for job in queue}
    found = {
        guest: host
        for guest, host in pairs.items()
        if jobs[guest].allows(size := sum(floor.given.get(host, {}).values()))
        and floor.pack(jobs[guest], jobs[host], size)
    }
    idle = sorted((job for job in queue if job.may_share), key=lambda job: job.device_use)
    for guest in idle:
        if guest.name in floor.given or guest.name in found:
            continue
        for host in idle:
            if floor.pack(guest, host, bases[guest.name]):
                found[guest.name] = host.name
                break
    return found


def _answer(job: Job, floor: Floor, memory: Memory, base: int, waiting: int) -> Allocation:
    workers = floor.given.get(job.name, {})
    count, turns = sum(workers.values()), memory.turns[job.name]
    share = floor.shares.get(job.name, 1.0)
    if not workers:
        return Allocation({}, f"waits for its turn, {turns} had so far; {waiting} jobs wait, all take turns")
    if share < 1:
        other = memory.pairs.get(job.name) or next(a for a, b in memory.pairs.items() if b == job.name)
        return Allocation(workers, f"{count} workers, packed with {other} on the same devices ({share:.0%})", share)
    if count > base:
        return Allocation(workers, f"{count} workers, {count - base} more than asked for: nobody waits for the node")
    if waiting:
        return Allocation(workers, f"{count} workers for its turn, number {turns}; {waiting} jobs wait for theirs")
    return Allocation(workers, f"{count} workers: all jobs fit, nobody takes turns")


POLICY = Gandiva
