"""First come, first served, in complete gangs."""

from __future__ import annotations

from elasticdl.scheduler import priorities
from elasticdl.scheduler.policies import load_policy
from elasticdl.scheduler.snapshot import Snapshot
from tests.unit.scheduler.cases import counts, decide, job, nodes, running

BEST_EFFORT, STRICT = load_policy("fifo-gang"), load_policy("fifo-gang-strict")
JOBS = running("runs", {"n0": 3}, 3), job("large", 4, submitted_at=1.0), job("small", 1, submitted_at=2.0)


def test_a_job_that_does_not_fit_is_skipped() -> None:
    decision = decide(BEST_EFFORT, nodes(6), *JOBS)

    assert counts(decision) == {"runs": 3, "large": 0, "small": 1}
    assert not decision.blocks_lower_priorities
    assert decision.plan.allocations["large"].reason == (
        "waits until 4 workers of 1 device are free at the same time; 2 devices are"
    )


def test_in_strict_mode_no_job_passes_the_head_of_the_queue() -> None:
    decision = decide(STRICT, nodes(6), *JOBS)

    assert counts(decision) == {"runs": 3, "large": 0, "small": 0}
    assert decision.blocks_lower_priorities
    assert "behind large" in decision.plan.allocations["small"].reason


def test_in_strict_mode_lower_priorities_get_nothing_while_a_job_waits() -> None:
    jobs = (job("head", 5, priority=1), job("first", 4, priority=1, submitted_at=-0.0), job("low", 1))
    snapshot = Snapshot(9.0, nodes(6), jobs)

    assert counts(priorities.decide_by_priority(STRICT, snapshot, None)) == {"head": 0, "first": 4, "low": 0}
    assert counts(priorities.decide_by_priority(BEST_EFFORT, snapshot, None)) == {"head": 0, "first": 4, "low": 1}


def test_an_elastic_job_gets_exactly_the_requested_workers() -> None:
    assert counts(decide(BEST_EFFORT, nodes(8), job("a", 1, 8, requested=3))) == {"a": 3}


def test_a_job_that_lost_a_node_queues_again() -> None:
    hurt, waiting = running("hurt", {"n0": 2, "gone": 2}, 4, submitted_at=5.0), job("waits", 3, submitted_at=1.0)

    assert counts(decide(BEST_EFFORT, nodes(4), hurt, waiting)) == {"hurt": 0, "waits": 3}
