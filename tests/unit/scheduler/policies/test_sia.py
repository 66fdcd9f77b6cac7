"""Sia: how many devices, and of which kind, by an integer program."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from elasticdl.scheduler.policies import load_policy
from elasticdl.scheduler.policies.sia import Sia, restart_factor
from elasticdl.scheduler.snapshot import JobInfo, PlacementConstraint, Snapshot
from tests.unit.scheduler.cases import Concave, applied, counts, workers_of
from tests.unit.scheduler.policies.rules import check, cluster


def job(name: str, power: float = 0.8, max_workers: int = 16, **more: object) -> JobInfo:
    return JobInfo(name, 0.0, max_workers=max_workers, rates=Concave(power, kinds=(("fast", 4.0),)), **more)  # type: ignore[arg-type]


def after(snapshot: Snapshot, rounds: int) -> Snapshot:
    """The cluster after this many rounds of 60 s."""
    seen, memory = snapshot, None
    for _ in range(rounds):
        decision = Sia().decide(seen, memory)
        seen, memory = applied(seen, decision.plan, 60.0), decision.memory
    return seen


def sizes(snapshot: Snapshot) -> dict[str, int]:
    return {job.name: job.worker_count for job in snapshot.jobs}


def test_jobs_start_with_one_worker_and_double_each_round() -> None:
    seen = Snapshot(0.0, cluster(4), (job("a"),))

    assert [sizes(after(seen, rounds))["a"] for rounds in (1, 2, 3, 4, 5, 6)] == [1, 2, 4, 8, 16, 16]


def test_sizes_above_one_node_are_whole_nodes() -> None:
    assert sizes(after(Snapshot(0.0, cluster(4), (job("a", max_workers=15),)), 8)) == {"a": 12}


def test_two_equal_jobs_share_evenly() -> None:
    assert sizes(after(Snapshot(0.0, cluster(2), (job("a"), job("b"))), 6)) == {"a": 4, "b": 4}


def test_the_job_that_scales_better_gets_more() -> None:
    assert sizes(after(Snapshot(0.0, cluster(1, 3), (job("bad", 0.1), job("good", 0.6))), 4)) == {"bad": 1, "good": 2}


def test_the_job_that_gains_more_gets_the_fast_kind() -> None:
    nodes = (*cluster(1, 1, "fast"), *cluster(1, 1, "slow"))
    same = JobInfo("same", 0.0, rates=Concave())

    assert workers_of(Sia().decide(Snapshot(0.0, nodes, (same, job("gains"))), None).plan) == {
        "same": {"slown0": 1},
        "gains": {"fastn0": 1},
    }


def test_a_job_restarted_too_often_for_its_run_time_is_unchanged() -> None:
    old = job("old", change_cost_s=50.0, restarts=9, started_at=0.0, workers={"n0": 1})

    assert restart_factor(old, 500.0) == pytest.approx(50 / 550)
    assert restart_factor(old, 40.0) == 1.0, "younger than a change takes"
    assert counts(Sia().decide(Snapshot(500.0, cluster(2), (old,)), None).plan) == {"old": 1}
    assert counts(Sia().decide(Snapshot(500.0, cluster(2), (replace(old, restarts=0),)), None).plan) == {"old": 2}


def test_a_job_that_fits_on_a_node_is_never_split_and_others_move_instead() -> None:
    """Three devices are free on two nodes; the two small ones are put together."""
    small = [job(f"s{i}", max_workers=1, workers={f"n{i}": 1}, started_at=0.0) for i in range(2)]
    wide = JobInfo("wide", 0.0, min_workers=4, max_workers=4)
    decision = workers_of(Sia().decide(Snapshot(1e4, cluster(2), (*small, wide)), None).plan)

    assert len(decision["wide"]) == 1
    assert decision["s0"].keys() == decision["s1"].keys() != decision["wide"].keys()


def test_only_allowed_sizes_are_used() -> None:
    odd = JobInfo("odd", 0.0, min_workers=3, max_workers=9, sizes=(3, 9))
    seen = Snapshot(0.0, cluster(3), (odd,))

    assert [sizes(after(seen, rounds))["odd"] for rounds in (1, 2)] == [3, 9]


def test_a_minimum_between_the_usual_sizes_still_starts() -> None:
    assert sizes(after(Snapshot(0.0, cluster(2), (JobInfo("a", 0.0, min_workers=3, max_workers=3),)), 1)) == {"a": 3}


def test_a_job_that_requires_two_kinds_gets_both() -> None:
    nodes = (*cluster(1, 4, "a"), *cluster(1, 4, "b"))
    both = JobInfo(
        "both",
        0.0,
        min_workers=3,
        max_workers=3,
        constraints=(PlacementConstraint(2, "a"), PlacementConstraint(1, "b")),
    )

    assert workers_of(Sia().decide(Snapshot(0.0, nodes, (both,)), None).plan) == {"both": {"an0": 2, "bn0": 1}}


def test_serving_another_job_is_preferred_over_one_more_worker() -> None:
    """The job hardly gains by its second worker."""
    running = job("runs", 0.05, workers={"n0": 2}, started_at=0.0)

    assert counts(Sia().decide(Snapshot(1e4, cluster(1, 2), (running, job("new"))), None).plan) == {"runs": 1, "new": 1}


def test_the_decision_is_unchanged_within_a_round() -> None:
    seen = Snapshot(0.0, cluster(2), (job("a"),))
    first = Sia().decide(seen, None)

    assert counts(Sia().decide(applied(seen, first.plan, 30.0), first.memory).plan) == {"a": 1}


def test_a_positive_p_maximizes_the_sum_of_goodputs() -> None:
    jobs = (job("bad", 0.1, workers={"n0": 4}, started_at=0.0), job("good", 1.0, workers={"n1": 4}, started_at=0.0))

    assert counts(Sia(fairness_power=1.0).decide(Snapshot(1e6, cluster(2), jobs), None).plan) == {"bad": 0, "good": 8}


def test_a_hundred_and_sixty_jobs_on_sixty_four_devices_of_three_kinds_take_less_than_a_second() -> None:
    nodes = (*cluster(6, 4, "t4"), *cluster(3, 8, "rtx"), *cluster(2, 8, "fast"))
    jobs = tuple(job(f"j{i}", 0.5 + i % 5 / 10, max_workers=1 + 15 * (i % 3)) for i in range(160))
    seen = after(Snapshot(0.0, nodes, jobs), 2)
    began = time.perf_counter()
    Sia().decide(seen, None)

    assert time.perf_counter() - began < 1.0


def test_no_rule_is_broken_on_random_clusters() -> None:
    for seed in range(30):
        check(load_policy("sia"), seed)
