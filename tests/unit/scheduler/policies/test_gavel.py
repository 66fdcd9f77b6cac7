"""Gavel: fractions of time on kinds of devices, given in rounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from elasticdl.errors import SpecError
from elasticdl.scheduler.policies import load_policy
from elasticdl.scheduler.policies.gavel import Gavel
from elasticdl.scheduler.snapshot import JobInfo, PlacementConstraint, Snapshot
from tests.unit.scheduler.cases import Concave, applied, counts, workers_of
from tests.unit.scheduler.policies.rules import check, cluster

MIXED = (*cluster(1, 1, "fast"), *cluster(1, 1, "slow"))


def job(name: str, fast: float, slow: float = 1.0, **more: object) -> JobInfo:
    return JobInfo(name, 0.0, rates=Concave(kinds=(("fast", fast), ("slow", slow))), **more)  # type: ignore[arg-type]


def rounds(policy: Gavel, snapshot: Snapshot, count: int) -> Counter[str]:
    """How many rounds each job had."""
    seen, memory, had = snapshot, None, Counter[str]()
    for _ in range(count):
        decision = policy.decide(seen, memory)
        had.update(name for name, counts_now in decision.plan.allocations.items() if counts_now.workers)
        seen, memory = applied(seen, decision.plan, 360.0), decision.memory
    return had


def test_the_job_that_gains_most_by_the_fast_device_gets_it() -> None:
    seen = Snapshot(0.0, MIXED, (job("a", 1.2, work_left=1e4), job("b", 1.0, 0.1, work_left=1e4)))

    assert workers_of(Gavel(objective="makespan").decide(seen, None).plan) == {"a": {"slown0": 1}, "b": {"fastn0": 1}}


def test_two_equal_jobs_take_turns_on_one_device() -> None:
    assert rounds(Gavel(), Snapshot(0.0, cluster(1, 1), (job("a", 1.0), job("b", 1.0))), 10) == {"a": 5, "b": 5}


def test_a_job_of_twice_the_weight_gets_twice_the_rounds() -> None:
    seen = Snapshot(0.0, cluster(1, 1), (job("a", 1.0, weight=2.0), job("b", 1.0)))

    assert rounds(Gavel(), seen, 12) == {"a": 8, "b": 4}


def test_the_makespan_objective_gives_the_longest_job_the_most_rounds() -> None:
    seen = Snapshot(0.0, cluster(1, 1), (job("long", 1.0, work_left=3e5), job("short", 1.0, work_left=1e5)))

    assert rounds(Gavel(objective="makespan"), seen, 12) == {"long": 9, "short": 3}


def test_the_fairness_objective_favours_the_job_with_the_longest_relative_wait() -> None:
    waited, new = job("waited", 1.0, work_left=1e4), replace(job("new", 1.0, work_left=1e4), submitted_at=99999.0)

    had = rounds(Gavel(objective="fairness"), Snapshot(1e5, cluster(1, 1), (waited, new)), 5)

    assert had == {"waited": 4, "new": 1}


def test_a_job_gets_all_of_its_workers_or_none() -> None:
    wide = JobInfo("wide", 0.0, max_workers=8, requested=3)

    assert counts(Gavel().decide(Snapshot(0.0, cluster(1, 2), (wide,)), None).plan) == {"wide": 0}
    assert counts(Gavel().decide(Snapshot(0.0, cluster(1, 4), (wide,)), None).plan) == {"wide": 3}


def test_within_a_round_no_job_is_preempted_and_free_devices_are_used() -> None:
    seen = Snapshot(0.0, cluster(1, 2), (job("a", 1.0), job("b", 1.0)))
    first = Gavel().decide(seen, None)
    later = applied(seen, first.plan, 100.0)
    one_left = replace(later, jobs=(later.jobs_by_name["a"], job("c", 1.0, weight=100.0), job("d", 1.0)))

    assert counts(Gavel().decide(one_left, first.memory).plan) == {"a": 1, "c": 1, "d": 0}


def test_a_job_that_runs_on_stays_on_its_node() -> None:
    seen = Snapshot(0.0, cluster(3, 1), (replace(job("a", 1.0), workers={"n2": 1}),))

    assert workers_of(Gavel().decide(seen, None).plan) == {"a": {"n2": 1}}


def test_a_job_too_large_for_each_kind_alone_spans_both() -> None:
    wide = JobInfo("wide", 0.0, max_workers=2)

    assert workers_of(Gavel().decide(Snapshot(0.0, MIXED, (wide,)), None).plan) == {"wide": {"fastn0": 1, "slown0": 1}}


@pytest.mark.parametrize("name", ["gavel", "gavel-makespan", "gavel-fairness"])
def test_no_rule_is_broken_on_random_clusters(name: str) -> None:
    for seed in range(12):
        check(load_policy(name), seed)


def test_a_job_that_requires_one_of_each_kind_gets_both() -> None:
    asks = JobInfo("asks", 0.0, 2, 2, constraints=(PlacementConstraint(1, "slow"), PlacementConstraint(1, "fast")))

    assert workers_of(Gavel().decide(Snapshot(0.0, MIXED, (asks,)), None).plan) == {"asks": {"fastn0": 1, "slown0": 1}}


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(SpecError, match="max-min"):
        load_policy("gavel:objective=speed")
