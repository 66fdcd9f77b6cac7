"""Elastic first come: a job starts at once with all free devices."""

from __future__ import annotations

from elasticdl.scheduler.policies.elastic_first_come import ElasticFirstCome
from elasticdl.scheduler.snapshot import NodeInfo
from tests.unit.scheduler.cases import counts, decide, job, nodes, running, workers_of

POLICY = ElasticFirstCome()


def test_minimums_are_served_in_order_then_each_job_grows_by_one_in_turn() -> None:
    first, second, third = job("a", 2, 9), job("b", 3, 4, submitted_at=1.0), job("c", 4, 9, submitted_at=2.0)

    assert counts(decide(POLICY, nodes(4, 4), third, second, first)) == {"a": 4, "b": 4, "c": 0}


def test_jobs_of_equal_priority_never_take_from_each_other() -> None:
    decision = decide(POLICY, nodes(4), running("late", {"n0": 4}, 1, 4, submitted_at=9.0), job("early", 1, 4))

    assert counts(decision) == {"late": 4, "early": 0}
    assert decision.plan.allocations["early"].reason == (
        "waits for its minimum of 1 workers: 0 devices are free, earlier jobs have the others"
    )


def test_a_smaller_job_passes_a_waiting_one() -> None:
    assert counts(decide(POLICY, nodes(4), job("large", 5, 9), job("small", 2, 2, submitted_at=1.0))) == {
        "large": 0,
        "small": 2,
    }


def test_new_jobs_use_few_nodes_and_no_job_is_moved() -> None:
    decision = decide(POLICY, nodes(4, 4, 4), running("old", {"n0": 1, "n1": 1}, 1, 2), job("a", 1, 4), job("b", 1, 3))

    assert workers_of(decision) == {"old": {"n0": 1, "n1": 1}, "a": {"n2": 4}, "b": {"n0": 3}}


def test_a_job_grows_beside_its_workers() -> None:
    assert workers_of(decide(POLICY, nodes(4, 4), running("a", {"n1": 1}, 1, 3))) == {"a": {"n1": 3}}


def test_a_job_keeps_the_remaining_devices_of_its_node() -> None:
    assert workers_of(decide(POLICY, nodes(2), running("a", {"n0": 3, "gone": 1}, 1, 4))) == {"a": {"n0": 2}}


def test_large_workers_and_kinds_are_placed_by_trial() -> None:
    cluster = (NodeInfo("n0", 3, "t4"), NodeInfo("n1", 4, "a100"))
    wide, picky = job("wide", 1, 9, devices=2), job("picky", 1, 9, submitted_at=1.0, kinds=("a100",))

    assert counts(decide(POLICY, cluster, wide, picky)) == {"wide": 2, "picky": 2}


def test_only_allowed_sizes_are_given() -> None:
    assert counts(decide(POLICY, nodes(7), job("a", 1, 8, sizes=(1, 2, 4, 8)), job("b", 1, 8, sizes=(1, 2, 4, 8)))) == {
        "a": 4,
        "b": 2,
    }
