"""Chooses the nodes for one job's workers: as few as possible, and its present nodes where they are as good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.snapshot import JobInfo, PlacementConstraint, WorkersByNode


def place_workers(free: FreeResources, job: JobInfo, count: int) -> WorkersByNode | None:
    """Returns as few nodes as possible for `count` workers; None: they do not fit. Allocates nothing.

    One node if one can hold them, the one with the least left over; else whole nodes, the emptiest first, and the
    remaining workers where they leave the least. The job's constraints (a kind, one rack) are met first.
    """
    workers_by_node: Counter[str] = Counter()
    for constraint, workers in sorted(
        _workers_per_constraint(job, count), key=lambda item: (not item[0].kind, not item[0].same_rack)
    ):
        if constraint.kind and job.kinds and constraint.kind not in job.kinds:
            return None
        restricted = replace(job, kinds=(constraint.kind,)) if constraint.kind else job
        nodes = (
            _place_in_one_rack(free, restricted, workers, workers_by_node)
            if constraint.same_rack
            else _place_on_few_nodes(free, restricted, workers, workers_by_node)
        )
        if nodes is None:
            return None
        workers_by_node.update(nodes)
    remaining = _place_on_few_nodes(free, job, count - workers_by_node.total(), workers_by_node)
    if remaining is None:
        return None
    workers_by_node.update(remaining)
    return dict(workers_by_node)


def resize_in_place(free: FreeResources, job: JobInfo, count: int) -> WorkersByNode | None:
    """Like `place_workers`, but workers stay in place: they leave nodes with the fewest, and new ones come beside."""
    current = {name: n for name, n in job.workers.items() if name in free.nodes}
    if sum(current.values()) >= count:
        remaining = shrink_workers(current, count)
        return (
            remaining
            if free.can_hold(job, remaining) and meets_constraints(free, job, remaining)
            else place_workers(free, job, count)
        )
    if not current or not free.can_hold(job, current) or not meets_constraints(free, job, current):
        return place_workers(free, job, count)
    workers_by_node = Counter(current)
    for name in sorted(current, key=lambda name: (-current[name], name)):
        workers_by_node[name] += min(free.workers_that_fit(job, name) - current[name], count - workers_by_node.total())
    added = _place_on_few_nodes(free, job, count - workers_by_node.total(), workers_by_node)
    return None if added is None else dict(workers_by_node + Counter(added))


def place_on_emptiest(free: FreeResources, job: JobInfo, count: int) -> WorkersByNode | None:
    """Fills the emptiest node, then the next one, as many published systems do. Allocates nothing."""
    workers_by_node: dict[str, int] = {}
    for name in free.emptiest_nodes(job) if count else ():
        workers_by_node[name] = min(free.workers_that_fit(job, name), count - sum(workers_by_node.values()))
        if sum(workers_by_node.values()) == count:
            return workers_by_node
    return None if count else {}


def shrink_workers(workers: WorkersByNode, count: int) -> WorkersByNode:
    """Returns `count` of these workers; the others leave the nodes with the fewest, so that whole nodes become free."""
    remaining = dict(workers)
    for name in sorted(workers, key=lambda name: (workers[name], name)):
        removed = min(remaining[name], sum(remaining.values()) - count)
        remaining[name] -= removed
    return {name: n for name, n in remaining.items() if n}


def meets_constraints(free: FreeResources, job: JobInfo, workers: WorkersByNode) -> bool:
    """Returns whether each constraint has its workers, none counted twice. Exact: tries all choices of racks."""
    if not job.constraints:
        return True
    supply: Counter[tuple[str, str]] = Counter()
    for name, count in workers.items():
        supply[free.nodes[name].rack, free.nodes[name].kind] += count
    needed = [workers for _, workers in _workers_per_constraint(job, supply.total())]
    racks = sorted({rack for rack, _ in supply})
    choices = product(*(racks if constraint.same_rack else [None] for constraint in job.constraints))
    return any(_are_constraints_met(supply, job.constraints, needed, choice) for choice in choices)


def is_consolidated(free: FreeResources, job: JobInfo, workers: WorkersByNode) -> bool:
    """Returns whether no placement on nodes of these sizes could use fewer of them."""
    sizes = sorted((free.nodes[name].devices // job.devices for name in workers), reverse=True)
    count = sum(workers.values())
    return count <= 0 or len(workers) <= 1 or sum(sizes[:-1]) < count


def _workers_per_constraint(job: JobInfo, count: int) -> list[tuple[PlacementConstraint, int]]:
    """Divides `count` workers among the constraints, the first ones first."""
    needed = []
    for constraint in job.constraints:
        needed.append((constraint, min(constraint.workers, count)))
        count -= needed[-1][1]
    return needed


def _place_on_few_nodes(free: FreeResources, job: JobInfo, count: int, reserved: Counter[str]) -> WorkersByNode | None:
    """`reserved` workers are taken from each node first, though `free` does not know of them."""
    if count <= 0:
        return {}
    if reserved:
        free.allocate(job, reserved)
        nodes = _place_on_few_nodes(free, job, count, Counter())
        free.release(job, reserved)
        return nodes
    node = next(free.best_fit_nodes(job, count), None)
    if node is not None:
        return {node: count}
    workers_by_node: dict[str, int] = {}
    for name in free.emptiest_nodes(job):
        remaining = count - sum(workers_by_node.values())
        if free.workers_that_fit(job, name) > remaining:
            # The last few go where they leave the least, not on the next empty node.
            name = next(nodes for nodes in free.best_fit_nodes(job, remaining) if nodes not in workers_by_node)
        workers_by_node[name] = min(free.workers_that_fit(job, name), remaining)
        if sum(workers_by_node.values()) == count:
            return workers_by_node
    return None


def _place_in_one_rack(free: FreeResources, job: JobInfo, count: int, reserved: Counter[str]) -> WorkersByNode | None:
    candidates = []
    free.allocate(job, reserved)
    remaining_nodes = free.remaining_nodes()
    free.release(job, reserved)
    for rack in free.racks:
        inside = FreeResources(node for node in remaining_nodes if node.rack == rack)
        if (workers := _place_on_few_nodes(inside, job, count, Counter())) is not None:
            candidates.append((len(workers), inside.total_workers_that_fit(job), rack, workers))
    return min(candidates, key=lambda candidate: candidate[:3])[3] if candidates else None


def _are_constraints_met(
    supply: Counter[tuple[str, str]],
    constraints: Sequence[PlacementConstraint],
    needed: Sequence[int],
    racks: Sequence[str | None],
) -> bool:
    """Hall's condition: any constraints together need at most the workers that one of them accepts."""
    for selection in product((False, True), repeat=len(constraints)):
        selected = [index for index, is_selected in enumerate(selection) if is_selected]
        available = sum(
            count
            for (rack, kind), count in supply.items()
            if any(racks[i] in (None, rack) and constraints[i].kind in ("", kind) for i in selected)
        )
        if sum(needed[i] for i in selected) > available:
            return False
    return True
