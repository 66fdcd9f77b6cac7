"""What Gandiva does with jobs on nodes: seats them by affinity, moves, grows and packs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from elasticdl.scheduler.placement import fewer, keep, meets_demands, place
from elasticdl.scheduler.room import Room
from elasticdl.scheduler.settling import fit, with_workers
from elasticdl.scheduler.snapshot import Job, Node, Workers


class Floor:
    """The nodes while a decision is made: who sits where, and with which share of its devices."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.room = Room(nodes)
        self.given: dict[str, Workers] = {}
        self.shares: dict[str, float] = {}
        self._sizes: dict[str, Counter[int]] = {name: Counter() for name in self.room.nodes}  # jobs on it, by devices

    def seat(self, job: Job, workers: Workers) -> None:
        self.leave(job)
        self.room.take(job, workers)
        self.given[job.name] = workers
        for name in workers:
            self._sizes[name][sum(workers.values()) * job.devices] += 1

    def leave(self, job: Job) -> None:
        workers = self.given.pop(job.name, {})
        self.room.give_back(job, workers)
        for name in workers:
            self._sizes[name][sum(workers.values()) * job.devices] -= 1

    def stay(self, job: Job, home: Workers, most: int) -> bool:
        """Seats it where it was, with no more than `most`; whether that is possible."""
        kept = fewer(home, min(sum(home.values()), most))
        if not kept or not job.allows(sum(kept.values())) or not self.room.holds(job, kept):
            return False
        if meets_demands(self.room, job, kept):
            self.seat(job, kept)
        return job.name in self.given

    def seat_all(self, line: list[Job], homes: Mapping[str, Workers], bases: Mapping[str, int]) -> None:
        """Who is first in line has its seats first, but those whose seats are free go back to them."""
        scratch = Room(self.room.left())
        tried: dict[str, Workers] = {}
        for job in line:
            home = with_workers(job, homes.get(job.name, {}))
            if seats := fit(scratch, home, bases[job.name]):
                scratch.take(job, seats)
                tried[job.name] = seats
        sizes = {name: sum(workers.values()) for name, workers in tried.items()}
        chosen = [job for job in line if job.name in tried]
        rest = [job for job in chosen if not self._stays(job, homes.get(job.name, {}), sizes[job.name])]
        for job in rest:
            workers = self._near(job, sizes[job.name]) or place(self.room, job, sizes[job.name])
            if not workers:
                break
            self.seat(job, workers)
        if any(job.name not in self.given for job in chosen):
            for job in chosen:
                self.leave(job)
            for job in chosen:
                self.seat(job, tried[job.name])

    def fill(self, line: Iterable[Job], bases: Mapping[str, int]) -> None:
        """Who has less than it asked for takes what is left."""
        for job in line:
            before = self.given.get(job.name, {})
            if not self.room.free or sum(before.values()) >= bases[job.name]:
                continue
            self.leave(job)
            if workers := fit(self.room, with_workers(job, before), bases[job.name]):
                self.seat(job, workers)

    def gather(self, jobs: Iterable[Job]) -> None:
        """Jobs that are spread are moved together."""
        for job in jobs:
            before = self.given.get(job.name, {})
            if len(before) < 2:
                continue
            self.leave(job)
            found = place(self.room, job, sum(before.values()))
            self.seat(job, found if found is not None and len(found) < len(before) else before)

    def clear(self, jobs: list[Job], empty_share: float) -> None:
        """The few jobs of nodes that are almost empty move to fuller ones."""
        room = self.room
        free = {
            name: room.devices[name] for name, node in room.nodes.items() if self._is_almost_empty(node, empty_share)
        }
        for node in sorted(free, key=lambda name: -free[name]):
            for job in jobs:
                if set(self.given.get(job.name, {})) != {node} or job.demands:
                    continue
                count = self.given[job.name][node]
                fuller = (
                    name
                    for name in room.tightest(job, count)
                    if room.devices[name] < min(room.devices[node], room.nodes[name].devices)
                )
                if (found := next(fuller, None)) is not None:
                    self.seat(job, {found: count})

    def grow(self, jobs: Iterable[Job]) -> None:
        """Jobs on one node take what is left of it."""
        for job in jobs:
            workers = self.given.get(job.name, {})
            if len(workers) == 1 and not job.demands:
                [(node, count)] = workers.items()
                most = job.largest(count + self.room.fits(job, node))
                if most > count:
                    self.seat(job, {node: most})

    def pack(self, guest: Job, host: Job, size: int) -> bool:
        """Both on the host's devices, each with its part; whether it can be."""
        there = self.given.get(host.name, {})
        if host.name in self.shares or not (guest.may_share and host.may_share):
            return False
        together = guest.device_use + host.device_use
        if not there or together > 1 or guest.devices != host.devices or sum(there.values()) != size:
            return False
        share = min(max(guest.device_use / together, 0.05), 0.95) if together else 0.5
        self.room.give_back(host, there)
        self.room.take(host, there, 1 - share)
        if not self.room.holds(guest, there, share) or not meets_demands(self.room, guest, there):
            self.room.give_back(host, there, 1 - share)
            self.room.take(host, there)
            return False
        self.room.take(guest, there, share)
        self.given[guest.name] = there
        self.shares |= {host.name: 1 - share, guest.name: share}
        return True

    def _stays(self, job: Job, home: Workers, size: int) -> bool:
        if not home or not self.room.holds(job, fewer(home, size)):
            return False
        found = keep(self.room, with_workers(job, home), size)
        if found:
            self.seat(job, found)
        return bool(found)

    def _near(self, job: Job, size: int) -> Workers | None:
        """On one node with jobs of its size, the least loaded; else on an empty one."""
        if job.demands:
            return None
        found = list(self.room.tightest(job, size))
        alike = [name for name in found if self._sizes[name][size * job.devices]]
        if alike:
            return {max(alike, key=lambda name: self.room.devices[name]): size}
        empty = next((name for name in found if self.room.devices[name] == self.room.nodes[name].devices), None)
        return {empty: size} if empty is not None else None

    def _is_almost_empty(self, node: Node, share: float) -> bool:
        return share * node.devices <= self.room.devices[node.name] < node.devices
