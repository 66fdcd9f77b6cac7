"""Each priority gets the resources that higher ones left."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from elasticdl.scheduler import priorities
from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.policies import load_policy
from elasticdl.scheduler.snapshot import GradientNoise, JobInfo, NodeInfo, PlacementConstraint, Snapshot, SpeedSample
from tests.unit.scheduler.cases import counts, job, nodes, running


@dataclass
class Seen:
    """Allocates nothing and remembers the snapshots."""

    snapshots: list[Snapshot]
    is_closed: bool = False
    name: str = "seen"
    is_rigid: bool = False
    interval_s: float = 0.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        self.snapshots.append(snapshot)
        plan = AllocationPlan({job_info.name: Allocation({}, "nothing for anybody") for job_info in snapshot.jobs})
        return Decision(plan, (memory or 0) + 1, self.is_closed)


def test_a_higher_priority_takes_from_a_lower_one_that_runs() -> None:
    low, high = running("low", {"n0": 4}, 1, 4), job("high", 3, priority=1, submitted_at=9.0)

    plan = priorities.decide_by_priority(
        load_policy("elastic-first-come"), Snapshot(10.0, nodes(4), (low, high)), None
    ).plan

    assert counts(plan) == {"high": 3, "low": 1}


def test_a_lower_priority_sees_only_the_remaining_devices() -> None:
    seen = Seen([])
    snapshot = Snapshot(0.0, nodes(4), (job("low"), job("high", priority=1)))

    decision = priorities.decide_by_priority(seen, snapshot, {1: 6, 9: 3})

    assert [[job_info.name for job_info in shown.jobs] for shown in seen.snapshots] == [["high"], ["low"]]
    assert decision.memory == {1: 7, 0: 1, 9: 3}


def test_a_closed_decision_leaves_nothing_to_lower_priorities() -> None:
    seen = Seen([], is_closed=True)

    priorities.decide_by_priority(seen, Snapshot(0.0, nodes(4, 2), (job("low"), job("high", priority=1))), None)

    assert [shown.total_devices for shown in seen.snapshots] == [6, 0]


def test_a_job_that_can_never_run_is_rejected_with_the_reason() -> None:
    jobs = (
        job("large", 9),
        job("wide", devices=8),
        job("kind", kinds=("h100",)),
        job("memory", request={"memory": 5.0}),
        job("sizes", 2, 3, sizes=(1, 4)),
        job("constraints", 2, constraints=(PlacementConstraint(1, "t4"),)),
        job("fine", 8),
    )

    plan = priorities.decide_by_priority(Seen([]), Snapshot(0.0, nodes(4, 4), jobs), None).plan

    assert {name for name, allocation in plan.allocations.items() if not allocation.is_rejected} == {"fine"}
    reasons = {name: allocation.reason for name, allocation in plan.allocations.items()}
    assert reasons["large"] == "can never run here: needs 9 workers of 1 device, the empty cluster has room for 8"
    assert "8 devices" in reasons["wide"] and "room for 0" in reasons["wide"]
    assert "of kind h100" in reasons["kind"]
    assert "1 device, memory 5" in reasons["memory"]
    assert reasons["sizes"] == "none of its sizes [1, 4] is between its minimum 2 and maximum 3"
    assert "placed as its constraints require" in reasons["constraints"]


def test_a_rigid_policy_rejects_by_the_size_that_was_requested() -> None:
    snapshot = Snapshot(0.0, nodes(4), (job("a", 1, 8, requested=5),))

    assert priorities.decide_by_priority(Seen([], is_rigid=True), snapshot, None).plan.allocations["a"].is_rejected
    assert not priorities.decide_by_priority(Seen([]), snapshot, None).plan.allocations["a"].is_rejected


def test_measurements_that_are_not_numbers_are_hidden_from_policies() -> None:
    good = SpeedSample(1, 1, 32, 0.2, 0.1)
    bad = SpeedSample(1, 1, 32, math.nan, 0.1), SpeedSample(0, 1, 32, 0.2, 0.1), SpeedSample(1, 1, 32, 0.2, -1.0)
    dirty = job("a", speeds=(*bad, good), noise=GradientNoise(math.nan, 1.0), work_left=math.inf)
    clean = job("b", speeds=(good,), noise=GradientNoise(1.0, 2.0), work_left=5.0)
    seen = Seen([])

    priorities.decide_by_priority(seen, Snapshot(0.0, nodes(4), (dirty, clean)), None)

    shown = seen.snapshots[0].jobs_by_name
    assert (shown["a"].speeds, shown["a"].noise, shown["a"].work_left) == ((good,), None, None)
    assert shown["b"] is clean


def test_a_job_that_fits_an_empty_cluster_has_no_reason_to_be_rejected() -> None:
    assert priorities.explain_infeasible(FreeResources(nodes(4)), job("a", 4)) == ""


def test_on_a_shared_cluster_no_job_is_rejected_permanently() -> None:
    wide = JobInfo("wide", 0.0, 2, 2, request={"memory": 700 * 2.0**20})
    alone = Snapshot(0.0, (NodeInfo("n", 1, resources={"memory": 2.0**30}),), (wide,))

    never = priorities.decide_by_priority(load_policy("goodput"), alone, None).plan.allocations["wide"]
    later = priorities.decide_by_priority(
        load_policy("goodput"), replace(alone, is_shared=True), None
    ).plan.allocations["wide"]

    assert never.is_rejected and "can never run here: needs 2 workers of 1 device, memory 700Mi" in never.reason
    assert not later.is_rejected and later.reason.endswith("they leave room for 1")
