"""Chooses the nodes for one job's workers: as few as possible, and its present nodes where they are as good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.snapshot import JobInfo, PlacementConstraint, WorkersByNode


def place_workers(room: FreeResources, job: JobInfo, count: int) -> WorkersByNode | None:
    """Nodes for `count` workers, on as few as there are; None: they do not fit. Takes nothing.

    One node if one has room, the one with the least left over; else whole nodes, the emptiest first, and the rest
    where it leaves the least. Demands of the job (a kind, one rack) are met first.
    """
    chosen: Counter[str] = Counter()
    for demand, wanted in sorted(
        _workers_per_constraint(job, count), key=lambda one: (not one[0].kind, not one[0].same_rack)
    ):
        if demand.kind and job.kinds and demand.kind not in job.kinds:
            return None
        part = replace(job, kinds=(demand.kind,)) if demand.kind else job
        found = (
            _place_in_one_rack(room, part, wanted, chosen)
            if demand.same_rack
            else _place_on_few_nodes(room, part, wanted, chosen)
        )
        if found is None:
            return None
        chosen.update(found)
    rest = _place_on_few_nodes(room, job, count - chosen.total(), chosen)
    if rest is None:
        return None
    chosen.update(rest)
    return dict(chosen)


def resize_in_place(room: FreeResources, job: JobInfo, count: int) -> WorkersByNode | None:
    """As `place`, but workers stay where they are: fewer leave the nodes with the fewest, more come beside them."""
    now = {name: n for name, n in job.workers.items() if name in room.nodes}
    if sum(now.values()) >= count:
        kept = shrink_workers(now, count)
        return (
            kept if room.can_hold(job, kept) and meets_constraints(room, job, kept) else place_workers(room, job, count)
        )
    if not now or not room.can_hold(job, now) or not meets_constraints(room, job, now):
        return place_workers(room, job, count)
    chosen = Counter(now)
    for name in sorted(now, key=lambda name: (-now[name], name)):
        chosen[name] += min(room.workers_that_fit(job, name) - now[name], count - chosen.total())
    rest = _place_on_few_nodes(room, job, count - chosen.total(), chosen)
    return None if rest is None else dict(chosen + Counter(rest))


def place_on_emptiest(room: FreeResources, job: JobInfo, count: int) -> WorkersByNode | None:
    """The emptiest node as far as it goes, then the next one: how many published systems place. Takes nothing."""
    chosen: dict[str, int] = {}
    for name in room.emptiest_nodes(job) if count else ():
        chosen[name] = min(room.workers_that_fit(job, name), count - sum(chosen.values()))
        if sum(chosen.values()) == count:
            return chosen
    return None if count else {}


def shrink_workers(workers: WorkersByNode, count: int) -> WorkersByNode:
    """`count` of these: the others leave the nodes that have the fewest, so that whole nodes become free."""
    left = dict(workers)
    for name in sorted(workers, key=lambda name: (workers[name], name)):
        gone = min(left[name], sum(left.values()) - count)
        left[name] -= gone
    return {name: n for name, n in left.items() if n}


def meets_constraints(room: FreeResources, job: JobInfo, workers: WorkersByNode) -> bool:
    """Whether each demand has its workers, none counted for two of them. Exact: all choices of racks are tried."""
    if not job.constraints:
        return True
    cells: Counter[tuple[str, str]] = Counter()
    for name, count in workers.items():
        cells[room.nodes[name].rack, room.nodes[name].kind] += count
    wanted = [workers for _, workers in _workers_per_constraint(job, cells.total())]
    racks = sorted({rack for rack, _ in cells})
    choices = product(*(racks if demand.same_rack else [None] for demand in job.constraints))
    return any(_are_constraints_met(cells, job.constraints, wanted, choice) for choice in choices)


def is_consolidated(room: FreeResources, job: JobInfo, workers: WorkersByNode) -> bool:
    """Whether no placement on nodes as large as these could use fewer of them."""
    sizes = sorted((room.nodes[name].devices // job.devices for name in workers), reverse=True)
    count = sum(workers.values())
    return count <= 0 or len(workers) <= 1 or sum(sizes[:-1]) < count


def _workers_per_constraint(job: JobInfo, count: int) -> list[tuple[PlacementConstraint, int]]:
    """Of so many workers: those that each demand gets, the first ones first."""
    found = []
    for demand in job.constraints:
        found.append((demand, min(demand.workers, count)))
        count -= found[-1][1]
    return found


def _place_on_few_nodes(room: FreeResources, job: JobInfo, count: int, taken: Counter[str]) -> WorkersByNode | None:
    """`taken` of each node's room is gone already, though `room` does not know it."""
    if count <= 0:
        return {}
    if taken:
        room.allocate(job, taken)
        found = _place_on_few_nodes(room, job, count, Counter())
        room.release(job, taken)
        return found
    one = next(room.best_fit_nodes(job, count), None)
    if one is not None:
        return {one: count}
    chosen: dict[str, int] = {}
    for name in room.emptiest_nodes(job):
        rest = count - sum(chosen.values())
        if room.workers_that_fit(job, name) > rest:
            # The last few go where they leave the least, not into the next empty node.
            name = next(found for found in room.best_fit_nodes(job, rest) if found not in chosen)
        chosen[name] = min(room.workers_that_fit(job, name), rest)
        if sum(chosen.values()) == count:
            return chosen
    return None


def _place_in_one_rack(room: FreeResources, job: JobInfo, count: int, taken: Counter[str]) -> WorkersByNode | None:
    found = []
    room.allocate(job, taken)
    left = room.remaining_nodes()
    room.release(job, taken)
    for rack in room.racks:
        inside = FreeResources(node for node in left if node.rack == rack)
        if (workers := _place_on_few_nodes(inside, job, count, Counter())) is not None:
            found.append((len(workers), inside.total_workers_that_fit(job), rack, workers))
    return min(found, key=lambda one: one[:3])[3] if found else None


def _are_constraints_met(
    cells: Counter[tuple[str, str]],
    demands: Sequence[PlacementConstraint],
    wanted: Sequence[int],
    racks: Sequence[str | None],
) -> bool:
    """Hall's condition: any demands together want no more than there is of what any of them takes."""
    for some in product((False, True), repeat=len(demands)):
        chosen = [index for index, is_in in enumerate(some) if is_in]
        supply = sum(
            count
            for (rack, kind), count in cells.items()
            if any(racks[i] in (None, rack) and demands[i].kind in ("", kind) for i in chosen)
        )
        if sum(wanted[i] for i in chosen) > supply:
            return False
    return True
