"""What every plan must keep, whatever the policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from elasticdl.scheduler.interface import Policy
from elasticdl.scheduler.placement import meets_demands, place
from elasticdl.scheduler.plan import Allocation, Plan
from elasticdl.scheduler.room import Room
from elasticdl.scheduler.snapshot import Job, Snapshot


def violations(policy: Policy, snapshot: Snapshot, plan: Plan) -> list[str]:
    """Every broken rule in a sentence; none for a plan that may be carried out."""
    found = [*_of_names(snapshot, plan)]
    if found:
        return found
    return [*_of_sizes(policy, snapshot, plan), *_of_capacity(snapshot, plan), *_of_priority(policy, snapshot, plan)]


def _of_names(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    if unknown := set(plan.allocations) - set(snapshot.by_name):
        yield f"allocates to jobs that are not there: {sorted(unknown)}"
    if forgotten := set(snapshot.by_name) - set(plan.allocations):
        yield f"says nothing about {sorted(forgotten)}"
    for name, given in plan.allocations.items():
        if lost := [node for node in given.workers if node not in snapshot.node_of]:
            yield f"{name}: puts workers on nodes that are not there: {sorted(lost)}"


def _of_sizes(policy: Policy, snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    for name, given in plan.allocations.items():
        job = snapshot.by_name[name]
        if any(count < 1 for count in given.workers.values()):
            yield f"{name}: has a node with less than one worker: {dict(given.workers)}"
        if given.workers and not (given.count == job.wish if policy.is_rigid else job.allows(given.count)):
            yield f"{name}: {given.count} workers, allowed are {_allowed(policy, job)}"
        if given.workers and given.is_rejected:
            yield f"{name}: is rejected and has workers"
        if not given.reason:
            yield f"{name}: no reason is given"
        if not 0 < given.share <= 1 or (given.share < 1 and not job.may_share):
            yield f"{name}: a share of {given.share} of its devices"
        if wrong := [node for node in given.workers if not job.runs_on(snapshot.node_of[node])]:
            yield f"{name}: on {wrong}, which are of another kind than {job.kinds}"
        if job.demands and given.workers and not meets_demands(Room(snapshot.nodes), job, given.workers):
            yield f"{name}: {dict(given.workers)} is not what its demands ask"


def _of_capacity(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    room = _left_by(snapshot, plan.allocations)
    for node, devices in room.devices.items():
        if devices < -1e-6:
            yield f"{node}: {-devices:g} devices more than it has"
    for node, left in room.resources.items():
        yield from (f"{node}: more {resource} than it has" for resource, amount in left.items() if amount < -1e-6)


def _of_priority(policy: Policy, snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """A waiting job could not even start on what is free and what jobs of lower priority have."""
    priorities = {job.priority for job in snapshot.jobs}
    for priority in sorted(priorities)[1:]:
        waiting = [
            job
            for job in snapshot.jobs
            if job.priority == priority and not plan.workers(job.name) and not plan.allocations[job.name].is_rejected
        ]
        above = {n: a for n, a in plan.allocations.items() if snapshot.by_name[n].priority >= priority}
        below = {n: a for n, a in plan.allocations.items() if snapshot.by_name[n].priority < priority and a.workers}
        if not below or not waiting:
            continue
        room, free = _left_by(snapshot, above), _left_by(snapshot, plan.allocations)
        for job in waiting:
            size = _least(policy, job)
            if place(room, job, size) is not None and place(free, job, size) is None:
                yield f"{job.name}: waits though jobs of lower priority have what it needs: {sorted(below)}"


def _least(policy: Policy, job: Job) -> int:
    return job.wish if policy.is_rigid else job.least


def _allowed(policy: Policy, job: Job) -> str:
    if policy.is_rigid:
        return str(job.wish)
    return ", ".join(map(str, job.sizes)) if job.sizes else f"{job.minimum} to {job.maximum}"


def _left_by(snapshot: Snapshot, allocations: Mapping[str, Allocation]) -> Room:
    room = Room(snapshot.nodes)
    for name, given in allocations.items():
        room.take(snapshot.by_name[name], given.workers, given.share)
    return room
