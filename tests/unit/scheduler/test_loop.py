"""Snapshot, decide, check, act; a failing policy does not affect its jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.loop import SchedulingLoop, keep_current_plan
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot
from tests.unit.scheduler.cases import counts, job, nodes, running


@dataclass
class Scripted:
    """Returns the prepared answers, each once."""

    answers: list[Callable[[Snapshot, Any], Decision]]
    name: str = "scripted"
    is_rigid: bool = False
    interval_s: float = 0.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        return self.answers.pop(0)(snapshot, memory)


@dataclass
class Machines:
    """Carries out plans at once."""

    cluster: tuple[NodeInfo, ...]
    jobs: tuple[JobInfo, ...]
    plans: list[AllocationPlan] = field(default_factory=list)

    def snapshot(self, now: float) -> Snapshot:
        return Snapshot(now, self.cluster, self.jobs)

    def apply(self, plan: AllocationPlan, now: float) -> None:
        self.plans.append(plan)
        self.jobs = tuple(replace(job_info, workers=plan.workers_of(job_info.name)) for job_info in self.jobs)


def gives(count: int) -> Callable[[Snapshot, Any], Decision]:
    def answer(snapshot: Snapshot, memory: Any) -> Decision:
        allocation = {job_info.name: Allocation({"n0": count}, "as told") for job_info in snapshot.jobs}
        return Decision(AllocationPlan(allocation), (memory or 0) + count)

    return answer


def fails(snapshot: Snapshot, memory: Any) -> Decision:
    raise ValueError("no idea")


def test_a_plan_is_applied_and_remembered() -> None:
    machines = Machines(nodes(4), (job("a", 1, 4),))
    ticks = iter([0.0, 2.0, 10.0, 11.0])
    loop = SchedulingLoop(
        Scripted([gives(2), lambda _, memory: gives(memory)(_, memory)]), machines, lambda: next(ticks)
    )

    assert counts(loop.run_once(0.0)) == {"a": 2}
    assert counts(loop.run_once(1.0)) == {"a": 2}
    assert (loop.decisions, loop.rejected_plans, loop.policy_s, loop.max_policy_s, loop.policy_error) == (
        2,
        0,
        3.0,
        2.0,
        "",
    )


@pytest.mark.parametrize(
    ("answer", "error"), [(fails, "ValueError: no idea"), (gives(3), "a: 3 workers, allowed are 1 to 2")]
)
def test_when_a_policy_fails_the_last_plan_stays_and_the_error_is_reported(
    answer: Callable[[Snapshot, Any], Decision], error: str, caplog: pytest.LogCaptureFixture
) -> None:
    machines = Machines(nodes(4), (job("a", 1, 2),))
    loop = SchedulingLoop(Scripted([gives(2), answer, gives(1)]), machines)
    loop.run_once(0.0)

    assert counts(loop.run_once(1.0)) == {"a": 2}
    assert error in loop.policy_error and error in machines.plans[-1].allocations["a"].reason
    assert error in caplog.text and "the last plan stays" in caplog.text
    assert counts(loop.run_once(2.0)) == {"a": 1}
    assert (loop.decisions, loop.rejected_plans, loop.policy_error) == (3, 1, "")


def test_a_new_job_waits_when_the_policy_fails() -> None:
    machines = Machines(nodes(4), (running("old", {"n0": 1}), job("new")))

    assert counts(SchedulingLoop(Scripted([fails]), machines).run_once(0.0)) == {"old": 1, "new": 0}


def test_a_kept_plan_has_only_workers_on_existing_nodes() -> None:
    jobs = (
        running("half", {"n0": 1, "gone": 1}, 1, 2),
        running("short", {"n0": 1, "gone": 1}, 2, 2),
        running("later", {"n0": 3}, 1, 3, submitted_at=5.0),
        running("great", {"n1": 4}, 1, 4, submitted_at=9.0, priority=1),
        running("small", {"n1": 4}, 1, 4, submitted_at=1.0),
    )

    plan = keep_current_plan(Snapshot(10.0, nodes(4, 4), jobs), "oh")

    assert counts(plan) == {"half": 1, "short": 0, "later": 3, "great": 4, "small": 0}
