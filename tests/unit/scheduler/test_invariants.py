"""Each rule has a plan that breaks it."""

from __future__ import annotations

import pytest

from elasticdl.scheduler.invariants import find_violations
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, PlacementConstraint, Snapshot
from tests.unit.scheduler.cases import job
from tests.unit.scheduler.test_priorities import Seen

CLUSTER = (NodeInfo("n0", 4, "a", resources={"memory": 8.0}), NodeInfo("n1", 4, "b", resources={"memory": 8.0}))


def find_broken_rules(*allocations: tuple[JobInfo, Allocation], is_rigid: bool = False) -> list[str]:
    snapshot = Snapshot(0.0, CLUSTER, tuple(job_info for job_info, _ in allocations))
    plan = AllocationPlan({job_info.name: allocation for job_info, allocation in allocations})
    return find_violations(Seen([], is_rigid=is_rigid), snapshot, plan)


def test_a_plan_for_a_job_that_is_not_there() -> None:
    plan = AllocationPlan({"ghost": Allocation({}, "boo")})

    assert find_violations(Seen([]), Snapshot(0.0, CLUSTER, ()), plan) == ["allocates to unknown jobs: ['ghost']"]


def test_a_plan_that_forgets_a_job() -> None:
    assert find_violations(Seen([]), Snapshot(0.0, CLUSTER, (job("a"),)), AllocationPlan()) == [
        "has no allocation for ['a']"
    ]


@pytest.mark.parametrize(
    ("job_info", "allocation", "violation"),
    [
        (job("j"), Allocation({"n9": 1}, "x"), "puts workers on unknown nodes: ['n9']"),
        (job("j", 1, 4), Allocation({"n0": 2, "n1": 0}, "x"), "a node with less than one worker"),
        (job("j", 1, 2), Allocation({"n0": 3}, "x"), "3 workers, allowed are 1 to 2"),
        (job("j", 1, 4, sizes=(1, 4)), Allocation({"n0": 2}, "x"), "2 workers, allowed are 1, 4"),
        (job("j"), Allocation({"n0": 1}, ""), "has no reason"),
        (job("j"), Allocation({"n0": 1}, "x", share=0.5), "a share of 0.5 of its devices"),
        (job("j", may_share=True), Allocation({"n0": 1}, "x", share=1.5), "a share of 1.5"),
        (job("j", may_share=True), Allocation({"n0": 1}, "x", share=0.0), "a share of 0.0"),
        (job("j", kinds=("b",)), Allocation({"n0": 1}, "x"), "whose devices are none of ('b',)"),
        (
            job("j", constraints=(PlacementConstraint(1, "b"),)),
            Allocation({"n0": 1}, "x"),
            "does not meet its constraints",
        ),
        (job("j", 5), Allocation({"n0": 5}, "x"), "n0: 1 devices more than it has"),
        (job("j", 2, devices=3), Allocation({"n0": 2}, "x"), "n0: 2 devices more than it has"),
        (job("j", 2, request={"memory": 5.0}), Allocation({"n0": 2}, "x"), "n0: more memory than it has"),
        (job("j"), Allocation({"n0": 1}, "x", is_rejected=True), "is rejected and has workers"),
    ],
)
def test_a_plan_that_breaks_one_rule_has_one_violation(
    job_info: JobInfo, allocation: Allocation, violation: str
) -> None:
    violations = find_broken_rules((job_info, allocation))

    assert len(violations) == 1 and violation in violations[0]


def test_a_rigid_policy_allocates_exactly_the_requested_workers() -> None:
    elastic, allocation = job("j", 1, 4, requested=3), Allocation({"n0": 2}, "x")

    assert find_broken_rules((elastic, allocation)) == []
    assert find_broken_rules((elastic, allocation), is_rigid=True) == ["j: 2 workers, allowed are 3"]


def test_shares_of_two_jobs_are_one_device() -> None:
    first, second = job("a", 4, may_share=True), job("b", 4, may_share=True)

    assert find_broken_rules((first, Allocation({"n0": 4}, "x", 0.6)), (second, Allocation({"n0": 4}, "x", 0.4))) == []
    assert find_broken_rules((first, Allocation({"n0": 4}, "x", 0.6)), (second, Allocation({"n0": 4}, "x", 0.5))) != []


def test_a_higher_priority_waits_for_no_lower_one() -> None:
    high, low = job("high", 6, priority=1), job("low", 4)

    violations = find_broken_rules((high, Allocation({}, "waits")), (low, Allocation({"n0": 4}, "x")))

    assert violations == ["high: waits though jobs of lower priority have what it needs: ['low']"]


def test_a_job_may_wait_for_devices_that_no_lower_priority_holds() -> None:
    high, another, low = job("high", 6, priority=1), job("other", 4, priority=1), job("low", 4)
    allocation = Allocation({"n0": 4}, "x")

    assert (
        find_broken_rules((high, Allocation({}, "waits")), (another, allocation), (low, Allocation({"n1": 4}, "x")))
        == []
    )
    assert find_broken_rules((high, Allocation({}, "no", is_rejected=True)), (low, allocation)) == []


def test_a_valid_plan_has_no_violations() -> None:
    assert (
        find_broken_rules((job("a", 1, 4), Allocation({"n0": 3}, "three")), (job("b", 5), Allocation({}, "waits")))
        == []
    )
