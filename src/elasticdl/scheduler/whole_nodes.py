"""Placement in which no job is split that fits on a node, and larger ones have their nodes to themselves (Sia)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from elasticdl.scheduler.arrange import Wanted
from elasticdl.scheduler.placement import keep
from elasticdl.scheduler.room import Room
from elasticdl.scheduler.settling import fit, next_size
from elasticdl.scheduler.snapshot import Job, Node, Workers


def lay_out(nodes: Iterable[Node], wanted: Sequence[Wanted], jobs: Mapping[str, Job]) -> dict[str, Workers]:
    """Workers of each job. Those in `wanted` may be restricted to one kind, those in `jobs` are as they came.

    Who has what it wants stays, if then all find a place; else small jobs move, else all do. Those who find none even
    then, because sizes do not add up to nodes, are split or get fewer; a job that shall have none starts with its
    least all the same where there is room, in the order of `wanted`: nobody waits beside a free device.
    """
    nodes = tuple(nodes)
    asked = sum(1 for _, count in wanted if count)
    for may_stay in (_anybody, _large, _nobody):
        room, given = _laid(nodes, wanted, may_stay)
        if len(given) == asked:
            break
    else:
        room, given = max((_laid(nodes, wanted, who) for who in (_anybody, _nobody)), key=lambda found: len(found[1]))
    for job, count in wanted:
        if job.name not in given:
            workers = fit(room, job, count) if count else {}
            given[job.name] = workers or fit(room, jobs[job.name], next_size(job, 0))
            room.take(job, given[job.name])
    return given


def _laid(nodes: tuple[Node, ...], wanted: Sequence[Wanted], may_stay: Callable[[Room, Job], bool]) -> _Laid:
    """Those who find a place, and the room they leave."""
    room = Room(nodes)
    given: dict[str, Workers] = {}
    rest = []
    for job, count in wanted:
        is_as_wanted = 0 < count == job.count and len(job.workers) <= _fewest_nodes(room, job, count)
        if is_as_wanted and may_stay(room, job) and room.holds(job, job.workers):
            given[job.name] = job.workers
            room.take(job, job.workers)
        elif count:
            rest.append((job, count))
    for job, count in sorted(rest, key=lambda one: (-one[1] * one[0].devices, one[0].submitted_at, one[0].name)):
        if (workers := _spot(room, job, count)) is not None:
            given[job.name] = workers
            room.take(job, workers)
    return room, given


_Laid = tuple[Room, dict[str, Workers]]


def _anybody(room: Room, job: Job) -> bool:
    return True


def _large(room: Room, job: Job) -> bool:
    """Those that have whole nodes."""
    return all(
        count == room.nodes[name].devices // job.devices for name, count in job.workers.items() if name in room.nodes
    )


def _nobody(room: Room, job: Job) -> bool:
    return False


def _spot(room: Room, job: Job, count: int) -> Workers | None:
    """One node, or whole ones that are free; those that it has now first."""
    if job.demands:
        return keep(room, job, count)
    own = sorted(job.workers, key=lambda name: (-job.workers[name], name))
    own = [name for name in own if name in room.nodes and room.fits(job, name)]
    one = next((name for name in own if room.fits(job, name) >= count), None) or next(room.tightest(job, count), None)
    if one is not None:
        return {one: count}
    if _fewest_nodes(room, job, count) == 1:
        return None
    chosen: dict[str, int] = {}
    for name in dict.fromkeys([*own, *room.emptiest(job)]):
        if room.devices[name] == room.nodes[name].devices:
            chosen[name] = min(room.fits(job, name), count - sum(chosen.values()))
        if sum(chosen.values()) == count:
            return chosen
    return None


def _fewest_nodes(room: Room, job: Job, count: int) -> int:
    """That so many workers can be on, if nothing else were there."""
    each = max((node.devices // job.devices for node in room.nodes.values() if job.runs_on(node)), default=1)
    return math.ceil(count / max(each, 1))
