"""Rules that every policy keeps, on any cluster with any jobs."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.scheduler import priorities
from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.invariants import find_violations
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import meets_constraints
from elasticdl.scheduler.plan import AllocationPlan
from elasticdl.scheduler.policies import POLICY_REGISTRY, load_policy
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, PlacementConstraint, Snapshot
from tests.properties import examples
from tests.unit.scheduler.cases import Concave, applied
from tests.unit.scheduler.policies.rules import QUICK

KINDS = ("", "t4", "a100")
EXAMPLES = settings(max_examples=examples(20))
POLICIES = pytest.mark.parametrize("name", sorted(POLICY_REGISTRY))


def cluster_of(chance: Random, size: int) -> tuple[NodeInfo, ...]:
    return tuple(
        NodeInfo(f"n{index}", chance.randint(1, 8), chance.choice(KINDS), chance.choice(("", "r1")), {"memory": 8.0})
        for index in range(size)
    )


def job_of(chance: Random, index: int) -> JobInfo:
    min_workers, more = chance.randint(1, 6), chance.randint(0, 8)
    is_known, is_odd = chance.random() < 0.5, chance.random() < 0.25  # most are plain
    return JobInfo(
        name=f"j{index}",
        submitted_at=chance.randint(0, 5) * 100.0,
        min_workers=min_workers,
        max_workers=min_workers + more,
        requested=chance.choice((0, min_workers, min_workers + more // 2)),
        sizes=chance.choice(((), (1, 2, 4, 8, 12))) if is_odd else (),
        priority=chance.choice((0, 0, 0, 1)),
        queue=chance.choice(("", "ads")),
        devices=chance.choice((1, 2, 3)) if is_odd else 1,
        request={"memory": chance.choice((1.0, 3.0))} if is_odd and chance.random() < 0.5 else {},
        kinds=chance.choice(((), ("t4",), ("t4", "a100"))) if is_odd else (),
        constraints=(PlacementConstraint(min(min_workers, 2), chance.choice(KINDS), same_rack=True),)
        if chance.random() < 0.05
        else (),
        is_guaranteed=chance.random() < 0.5,
        may_share=chance.random() < 0.5,
        device_use=chance.choice((0.2, 0.5, 0.9, 1.0)),
        attained_s=chance.choice((0.0, 1e3, 1e5)),
        executed_s=chance.choice((0.0, 1e3, 3e4)),
        change_cost_s=chance.choice((0.0, 30.0)),
        rates=Concave(chance.choice((0.5, 0.9))) if is_known else None,
        work_left=chance.choice((None, 1e2, 1e5)) if is_known else None,
        weight=chance.choice((1.0, 2.0)),
    )


def snapshot_of(seed: int, nodes: int, jobs: int) -> Snapshot:
    """Hypothesis shrinks the numbers; their properties are drawn at random, which is much faster."""
    chance = Random(seed)
    cluster = cluster_of(chance, nodes)
    room = FreeResources(cluster)
    job_list = [_started(job_of(chance, index), room, chance.random() < 0.5, chance) for index in range(jobs)]
    return Snapshot(600.0, cluster, tuple(job_list))


def snapshots() -> st.SearchStrategy[Snapshot]:
    return st.builds(snapshot_of, st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 12))


def _started(job_info: JobInfo, room: FreeResources, does_run: bool, chance: Random) -> JobInfo:
    """Places the job anywhere, not where a good policy would place it."""
    names = [name for name in room.nodes for _ in range(room.workers_that_fit(job_info, name))]
    size = chance.choice([0, *job_info.sizes_up_to(len(names))])
    if not does_run or not size:
        return job_info
    workers: dict[str, int] = {}
    for name in chance.sample(names, size):
        workers[name] = workers.get(name, 0) + 1
    if not meets_constraints(room, job_info, workers):
        return job_info
    room.allocate(job_info, workers)
    return replace(
        job_info, workers=workers, started_at=job_info.submitted_at, changed_at=550.0, max_workers_so_far=size
    )


def _changed(cluster: tuple[NodeInfo, ...], turn: int) -> tuple[NodeInfo, ...]:
    """First a node is lost, then one has fewer devices, then a new one comes."""
    if turn == 0 and len(cluster) > 1:
        return cluster[1:]
    if turn == 1:
        return (replace(cluster[0], devices=max(cluster[0].devices - 2, 0)), *cluster[1:])
    return (*cluster, NodeInfo(f"more{turn}", 4)) if turn == 2 else cluster


def workers_and_shares(plan: AllocationPlan) -> dict[str, tuple[dict[str, int], float]]:
    return {name: (dict(allocation.workers), allocation.share) for name, allocation in plan.allocations.items()}


def decide_and_check(name: str, snapshot: Snapshot, memory: Any) -> Decision:
    policy = load_policy(QUICK.get(name, name))
    decision = priorities.decide_by_priority(policy, snapshot, memory)
    assert find_violations(policy, snapshot, decision.plan) == []
    assert all(allocation.reason for allocation in decision.plan.allocations.values())
    return decision


@POLICIES
@EXAMPLES
@given(snapshot=snapshots(), chance=st.randoms(use_true_random=False))
def test_no_rule_is_broken_and_the_same_input_has_the_same_answer_in_any_order(
    name: str, snapshot: Snapshot, chance: Random
) -> None:
    first = decide_and_check(name, snapshot, None)

    assert workers_and_shares(decide_and_check(name, snapshot, None).plan) == workers_and_shares(first.plan)
    shuffled = Snapshot(
        snapshot.now,
        tuple(chance.sample(snapshot.nodes, len(snapshot.nodes))),
        tuple(chance.sample(snapshot.jobs, len(snapshot.jobs))),
    )
    assert workers_and_shares(decide_and_check(name, shuffled, None).plan) == workers_and_shares(first.plan)


@POLICIES
@EXAMPLES
@given(snapshot=snapshots())
def test_a_decision_is_repeated_while_nothing_happens(name: str, snapshot: Snapshot) -> None:
    first = decide_and_check(name, snapshot, None)

    again = decide_and_check(name, applied(snapshot, first.plan), first.memory)

    assert workers_and_shares(again.plan) == workers_and_shares(first.plan)


@POLICIES
@EXAMPLES
@given(snapshot=snapshots(), waits=st.lists(st.sampled_from((1.0, 60.0, 400.0)), min_size=3, max_size=6))
def test_no_rule_is_broken_over_time_as_jobs_and_nodes_come_and_go(
    name: str, snapshot: Snapshot, waits: list[float]
) -> None:
    memory: Any = None
    for turn, wait_s in enumerate(waits):
        decision = decide_and_check(name, snapshot, memory)
        memory = decision.memory
        snapshot = applied(snapshot, decision.plan, wait_s)
        left = [job_info for index, job_info in enumerate(snapshot.jobs) if index != turn]
        newcomer = JobInfo(f"new{turn}", snapshot.now, 1 + turn % 3, 4)
        snapshot = Snapshot(snapshot.now, _changed(snapshot.nodes, turn), (*left, newcomer))


@POLICIES
def test_snapshots_without_jobs_or_nodes_are_handled(name: str) -> None:
    policy = load_policy(QUICK.get(name, name))
    cluster = (NodeInfo("n0", 4),)
    job_info = JobInfo("a", 0.0)

    assert policy.decide(Snapshot(0.0, cluster, ()), None).plan.allocations == {}
    assert policy.decide(Snapshot(0.0, (), ()), None).plan.allocations == {}
    nowhere = policy.decide(Snapshot(0.0, (), (job_info,)), None).plan
    assert not nowhere.workers_of("a") and nowhere.allocations["a"].reason
    assert decide_and_check(name, Snapshot(0.0, (), (job_info,)), None).plan.allocations["a"].is_rejected
    assert decide_and_check(name, Snapshot(0.0, cluster, (job_info,)), None).plan.allocations["a"].worker_count == 1
