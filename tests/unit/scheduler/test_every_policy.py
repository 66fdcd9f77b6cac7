"""What every policy keeps, on whatever cluster with whatever jobs."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elasticdl.scheduler import tiers
from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.invariants import violations
from elasticdl.scheduler.plan import Plan
from elasticdl.scheduler.policies import KNOWN, named
from elasticdl.scheduler.room import Room
from elasticdl.scheduler.snapshot import Job, Node, Snapshot
from tests.unit.scheduler.cases import Concave, applied

KINDS = ("", "t4", "a100")
EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
POLICIES = pytest.mark.parametrize("name", sorted(KNOWN))


def clusters() -> st.SearchStrategy[tuple[Node, ...]]:
    shape = st.tuples(st.integers(1, 8), st.sampled_from(KINDS), st.sampled_from(("", "r1")))
    return st.lists(shape, min_size=1, max_size=8).map(
        lambda shapes: tuple(
            Node(f"n{index}", devices, kind, rack, {"memory": 8.0})
            for index, (devices, kind, rack) in enumerate(shapes)
        )
    )


@st.composite
def jobs(draw: st.DrawFn, index: int) -> Job:
    minimum, more = draw(st.integers(1, 6)), draw(st.integers(0, 8))
    is_known = draw(st.booleans())
    is_odd = draw(st.integers(0, 3)) == 0  # most are plain
    return Job(
        name=f"j{index}",
        submitted_at=float(draw(st.integers(0, 5)) * 100),
        minimum=minimum,
        maximum=minimum + more,
        requested=draw(st.sampled_from((0, minimum, minimum + more // 2))),
        sizes=draw(st.sampled_from(((), (1, 2, 4, 8, 12)))) if is_odd else (),
        priority=draw(st.sampled_from((0, 0, 0, 1))),
        queue=draw(st.sampled_from(("", "ads"))),
        devices=draw(st.sampled_from((1, 2, 3))) if is_odd else 1,
        request={"memory": draw(st.sampled_from((1.0, 3.0)))} if is_odd and draw(st.booleans()) else {},
        kinds=draw(st.sampled_from(((), ("t4",), ("t4", "a100")))) if is_odd else (),
        is_guaranteed=draw(st.booleans()),
        may_share=draw(st.booleans()),
        device_use=draw(st.sampled_from((0.2, 0.5, 0.9, 1.0))),
        attained_s=draw(st.sampled_from((0.0, 1e3, 1e5))),
        executed_s=draw(st.sampled_from((0.0, 1e3, 3e4))),
        change_cost_s=draw(st.sampled_from((0.0, 30.0))),
        rates=Concave(draw(st.sampled_from((0.5, 0.9)))) if is_known else None,
        work_left=draw(st.sampled_from((None, 1e2, 1e5))) if is_known else None,
        weight=draw(st.sampled_from((1.0, 2.0))),
        deadline_at=draw(st.sampled_from((None, 5e3))),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    cluster = draw(clusters())
    waiting = [draw(jobs(index)) for index in range(draw(st.integers(1, 12)))]
    room, found = Room(cluster), []
    for one in waiting:
        found.append(_started(one, room, draw(st.booleans()), draw(st.randoms(use_true_random=False))))
    return Snapshot(600.0, cluster, tuple(found))


def _started(one: Job, room: Room, does_run: bool, chance: Random) -> Job:
    """Somewhere, not where a good policy would have put it."""
    names = [name for name in room.nodes for _ in range(room.fits(one, name))]
    size = chance.choice([0, *one.allowed(len(names))])
    if not does_run or not size:
        return one
    chosen: dict[str, int] = {}
    for name in chance.sample(names, size):
        chosen[name] = chosen.get(name, 0) + 1
    room.take(one, chosen)
    return replace(one, workers=chosen, started_at=one.submitted_at, changed_at=550.0, most_workers=size)


def shown(plan: Plan) -> dict[str, tuple[dict[str, int], float]]:
    return {name: (dict(given.workers), given.share) for name, given in plan.allocations.items()}


def checked(name: str, snapshot: Snapshot, memory: Any) -> Decision:
    policy = named(name)
    decision = tiers.decide(policy, snapshot, memory)
    assert violations(policy, snapshot, decision.plan) == []
    assert all(given.reason for given in decision.plan.allocations.values())
    return decision


@POLICIES
@EXAMPLES
@given(snapshot=snapshots(), chance=st.randoms(use_true_random=False))
def test_no_rule_is_broken_and_the_same_input_has_the_same_answer_in_any_order(
    name: str, snapshot: Snapshot, chance: Random
) -> None:
    first = checked(name, snapshot, None)

    assert shown(checked(name, snapshot, None).plan) == shown(first.plan)
    shuffled = Snapshot(
        snapshot.now,
        tuple(chance.sample(snapshot.nodes, len(snapshot.nodes))),
        tuple(chance.sample(snapshot.jobs, len(snapshot.jobs))),
    )
    assert shown(checked(name, shuffled, None).plan) == shown(first.plan)


@POLICIES
@EXAMPLES
@given(snapshot=snapshots())
def test_what_was_decided_is_decided_again_while_nothing_happens(name: str, snapshot: Snapshot) -> None:
    first = checked(name, snapshot, None)

    again = checked(name, applied(snapshot, first.plan), first.memory)

    assert shown(again.plan) == shown(first.plan)


@POLICIES
@EXAMPLES
@given(snapshot=snapshots(), waits=st.lists(st.sampled_from((1.0, 60.0, 400.0)), min_size=3, max_size=6))
def test_rules_are_kept_while_time_goes_on_and_jobs_come_and_go(
    name: str, snapshot: Snapshot, waits: list[float]
) -> None:
    memory: Any = None
    for turn, wait_s in enumerate(waits):
        decision = checked(name, snapshot, memory)
        memory = decision.memory
        snapshot = applied(snapshot, decision.plan, wait_s)
        left = [one for index, one in enumerate(snapshot.jobs) if index != turn]
        newcomer = Job(f"new{turn}", snapshot.now, 1 + turn % 3, 4)
        snapshot = Snapshot(snapshot.now, snapshot.nodes, (*left, newcomer))


@POLICIES
def test_no_jobs_and_no_nodes_are_no_trouble(name: str) -> None:
    policy = named(name)
    cluster = (Node("n0", 4),)
    one = Job("a", 0.0)

    assert policy.decide(Snapshot(0.0, cluster, ()), None).plan.allocations == {}
    assert policy.decide(Snapshot(0.0, (), ()), None).plan.allocations == {}
    nowhere = policy.decide(Snapshot(0.0, (), (one,)), None).plan
    assert not nowhere.workers("a") and nowhere.allocations["a"].reason
    assert checked(name, Snapshot(0.0, (), (one,)), None).plan.allocations["a"].is_rejected
    assert checked(name, Snapshot(0.0, cluster, (one,)), None).plan.allocations["a"].count == 1
