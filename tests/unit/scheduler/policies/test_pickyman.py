"""PickyMan stops the jobs whose stop costs the least."""

from __future__ import annotations

from elasticdl.scheduler import priorities
from elasticdl.scheduler.policies.pickyman import PickyMan
from elasticdl.scheduler.snapshot import Snapshot
from tests.unit.scheduler.cases import counts, decide, job, nodes, running, workers_of

POLICY = PickyMan()


def test_the_job_that_is_cheaper_to_stop_is_preempted() -> None:
    cheap, dear = running("cheap", {"n0": 2}, 2, change_cost_s=5.0), running("dear", {"n0": 2}, 2, change_cost_s=50.0)
    great = job("great", 2, priority=1)

    plan = priorities.decide_by_priority(POLICY, Snapshot(9.0, nodes(4), (cheap, dear, great)), None).plan

    assert counts(plan) == {"cheap": 0, "dear": 2, "great": 2}
    assert "stopped, which costs 10 device-seconds" in plan.allocations["cheap"].reason


def test_the_cost_of_stopping_includes_the_work_since_the_last_checkpoint() -> None:
    just_saved = running("saved", {"n0": 2}, 2, changed_at=0.0)
    long_ago = running("ago", {"n0": 2}, 2, changed_at=50.0, submitted_at=5.0)

    assert counts(decide(PickyMan(checkpoint_s=100.0), nodes(2), just_saved, long_ago)) == {"saved": 0, "ago": 2}
    assert counts(decide(POLICY, nodes(2), just_saved, long_ago)) == {"saved": 2, "ago": 0}


def test_a_stopped_job_moves_if_possible_and_queues_before_new_jobs() -> None:
    stays, moves = running("stays", {"n0": 2}, 2, change_cost_s=9.0), running("moves", {"n0": 2}, 2, submitted_at=5.0)

    decision = decide(POLICY, nodes(2, 2), stays, moves, job("waits", 2, submitted_at=1.0))

    assert workers_of(decision) == {"stays": {"n0": 2}, "moves": {"n1": 2}, "waits": {}}


def test_jobs_of_equal_priority_are_not_stopped_for_each_other() -> None:
    assert counts(decide(POLICY, nodes(2), running("late", {"n0": 2}, 2, submitted_at=9.0), job("early", 2))) == {
        "late": 2,
        "early": 0,
    }
