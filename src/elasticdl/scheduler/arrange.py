"""Nodes for many jobs at once, when it is known how many workers each shall have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from elasticdl.scheduler.room import Room
from elasticdl.scheduler.settling import enlarge, fit, next_size
from elasticdl.scheduler.snapshot import Job, Node, Workers

Wanted = tuple[Job, int]


def arrange(nodes: Iterable[Node], wanted: Sequence[Wanted], found: Mapping[str, Workers] = {}) -> dict[str, Workers]:
    """Workers of each job. They stay where they are, unless placing all anew serves more jobs, or gives more devices.

    `found` is a placement of all that is wanted, where it is known already that there is one. Without it, whoever
    does not fit gets the largest allowed size that does, or nothing. A job that shall have none (0) starts with its
    least all the same if there is room for it then, in the order of `wanted`: nobody waits beside a free device.
    """
    nodes = tuple(nodes)
    given = _in_turn(nodes, wanted)
    if any(sum(given[job.name].values()) < count for job, count in wanted):
        anew = dict(found) or _in_turn(nodes, [(replace(job, workers={}), count) for job, count in wanted])
        given = anew if _worth(anew, wanted) > _worth(given, wanted) else given
    room = Room(nodes)
    for job, _ in wanted:
        room.take(job, given.setdefault(job.name, {}))
    for job, count in wanted:
        if not count and room.free >= job.devices:
            given[job.name] = fit(room, job, next_size(job, 0))
            room.take(job, given[job.name])
    return given


def by_change(wanted: Iterable[Wanted]) -> list[Wanted]:
    """Who stays as it is, who shrinks, who grows, who starts; among these the larger and the more particular first."""

    def key(one: Wanted) -> tuple[int, int, int, float, str]:
        job, count = one
        change = 3 if not job.workers else 0 if job.count == count else 1 if count < job.count else 2
        return change, len(job.kinds) or 1 << 30, -count * job.devices, job.submitted_at, job.name

    return sorted(wanted, key=key)


def go_round(room: Room, queue: Sequence[Job], given: dict[str, Workers]) -> None:
    """What is left goes round in this order, a step to the next allowed size each, until nobody can take more."""
    turn = list(queue)
    while turn and room.free:
        turn = [job for job in turn if _take_a_step(room, job, given)]


def _take_a_step(room: Room, job: Job, given: dict[str, Workers]) -> bool:
    workers = given.get(job.name, {})
    size = next_size(job, sum(workers.values()))
    grown = enlarge(room, job, workers, size) if size else None
    if grown is None:
        return False
    given[job.name] = grown
    return True


def _in_turn(nodes: Iterable[Node], wanted: Sequence[Wanted]) -> dict[str, Workers]:
    room = Room(nodes)
    given: dict[str, Workers] = {}
    for job, count in by_change(wanted):
        given[job.name] = fit(room, job, count) if count else {}
        room.take(job, given[job.name])
    return given


def _worth(given: Mapping[str, Workers], wanted: Sequence[Wanted]) -> tuple[int, int]:
    served = sum(1 for workers in given.values() if workers)
    return served, sum(job.devices * sum(given.get(job.name, {}).values()) for job, _ in wanted)
