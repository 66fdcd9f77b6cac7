"""Least attained service in two queues."""

from __future__ import annotations

import pytest

from elasticdl.scheduler.policies import load_policy
from elasticdl.scheduler.policies.elastic_tiresias import ElasticTiresias, speedups_by_size
from elasticdl.scheduler.policies.tiresias import Memory, Tiresias, gittins_index
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot
from tests.unit.scheduler.cases import Concave, applied, counts, decide, job, nodes, running, workers_of

POLICY = Tiresias(threshold_s=1000.0)


def turns(
    policy: Tiresias, cluster: tuple[NodeInfo, ...], *jobs: JobInfo, times: int, every_s: float = 60.0
) -> list[set[str]]:
    """The jobs that ran after each decision."""
    snapshot, memory, started = Snapshot(0.0, cluster, jobs), None, []
    for _ in range(times):
        decision = policy.decide(snapshot, memory)
        started.append({name for name, count in counts(decision).items() if count})
        snapshot, memory = applied(snapshot, decision.plan, every_s), decision.memory
    return started


def test_a_job_that_used_its_share_moves_behind_the_others() -> None:
    # 4 devices for 240 s are 960 device-seconds, for 300 s they are 1200: then the other comes first.
    ran = turns(POLICY, nodes(4), job("a", 4), job("b", 4, submitted_at=1.0), times=7)

    assert ran == [{"a"}] * 5 + [{"b"}] * 2


def test_in_the_second_queue_the_first_job_runs_to_its_end() -> None:
    ran = turns(POLICY, nodes(4), job("a", 4), job("b", 4, submitted_at=1.0), times=20)

    assert ran[10:] == [{"a"}] * 10


def test_a_promoted_job_starts_over() -> None:
    ran = turns(
        Tiresias(threshold_s=1000.0, promote_after=1.0), nodes(4), job("a", 4), job("b", 4, submitted_at=1.0), times=22
    )

    assert ran[10:] == [{"a"}] * 5 + [{"b"}] * 5 + [{"a"}] * 2


def test_a_job_that_does_not_fit_is_skipped_and_the_next_taken() -> None:
    jobs = job("a", 3), job("b", 2, submitted_at=1.0), job("c", 1, submitted_at=2.0)

    assert counts(decide(POLICY, nodes(4), *jobs)) == {"a": 3, "b": 0, "c": 1}


def test_new_jobs_take_the_emptiest_nodes_first_and_the_lowest_of_them() -> None:
    jobs = running("stays", {"n1": 1}), job("a", 3, submitted_at=1.0), job("b", 5, submitted_at=2.0)

    assert workers_of(decide(POLICY, nodes(4, 4, 4, 2), *jobs)) == {
        "stays": {"n1": 1},
        "a": {"n0": 3},
        "b": {"n2": 4, "n1": 1},
    }


def test_time_counts_from_decision_to_decision_while_it_runs() -> None:
    first = decide(POLICY, nodes(4), job("a", 2, executed_s=7.0), now=0.0)
    then = decide(POLICY, nodes(4), running("a", {"n0": 2}, 2), memory=first.memory, now=60.0)

    assert then.memory.executed_s == {"a": 67.0}
    assert "0.04 device-hours so far, queue 1 of 2" in then.plan.allocations["a"].reason


def test_the_gittins_index_is_the_best_ratio_of_completion_chance_to_time() -> None:
    # Of 1, 2 and 10: within 2, two of three end, for (1 + 2 + 2) / 3 on average.
    assert gittins_index([1.0, 2.0, 10.0], 0.0, 100.0) == pytest.approx(2 / 5)
    assert gittins_index([1.0, 2.0, 10.0], 2.0, 100.0) == pytest.approx(1 / 8)
    assert gittins_index([1.0, 2.0, 10.0], 10.0, 100.0) == 0.0
    assert gittins_index([1.0, 2.0, 10.0], 0.0, 1.0) == pytest.approx(1 / 3)


def test_with_gittins_a_job_that_likely_ends_soon_passes_the_first() -> None:
    policy = load_policy("tiresias-gittins")
    jobs = job("new", 4), job("near", 4, submitted_at=1.0)
    ended = tuple([1000.0] * 9 + [1e6])
    past = Memory(100.0, (("new", "near"), ()), {"new": 0.0, "near": 225.0}, {}, {}, ended)

    assert counts(decide(policy, nodes(4), *jobs, memory=past)) == {"near": 4, "new": 0}
    few_jobs = Memory(100.0, past.queues, past.executed_s, {}, {}, ended[1:])
    assert counts(decide(policy, nodes(4), *jobs, memory=few_jobs)) == {"near": 0, "new": 4}


def test_the_service_of_jobs_that_ended_is_remembered() -> None:
    past = Memory(0.0, (("gone", "here"), ()), {"gone": 5.0, "here": 1.0}, {}, {"gone": 20.0, "here": 1.0})

    assert decide(POLICY, nodes(4), job("here"), memory=past).memory.ended_service_s == (20.0,)


def test_elastic_jobs_get_remaining_devices_by_their_gain() -> None:
    slow, fast = job("slow", 1, 8, requested=2, rates=Concave(0.2)), job("fast", 1, 8, requested=2, rates=Concave(0.9))

    assert counts(decide(ElasticTiresias(), nodes(8), slow, fast)) == {"slow": 2, "fast": 6}


def test_under_contention_jobs_of_the_second_queue_shrink() -> None:
    old = running("old", {"n0": 8}, 2, 8, executed_s=1e4)
    crowd = [job(f"j{index}", 2, 4, submitted_at=float(index + 1), executed_s=1e4) for index in range(4)]

    few_jobs = decide(ElasticTiresias(promote_after=0.0), nodes(8), old, *crowd)
    many = decide(ElasticTiresias(promote_after=0.0, crowded_above=3), nodes(8), old, *crowd)

    assert counts(few_jobs) == {"old": 8, "j0": 0, "j1": 0, "j2": 0, "j3": 0}
    assert counts(many) == {"old": 2, "j0": 2, "j1": 2, "j2": 2, "j3": 0}
    assert "4 jobs wait, so jobs of queue 2 are at their minimum" in many.plan.allocations["old"].reason


def test_a_job_that_does_not_fit_with_what_it_requested_starts_with_less() -> None:
    old, new = job("old", 1, 8, executed_s=1e4), job("new", 5, submitted_at=1.0)

    assert counts(decide(ElasticTiresias(), nodes(8), old, new)) == {"new": 5, "old": 3}


def test_an_unknown_job_is_assumed_to_scale_linearly() -> None:
    assert list(speedups_by_size(job("a"), 3, 8)) == [0.0, 1.0, 2.0, 3.0]
    assert speedups_by_size(job("a", rates=Concave(0.5, apart=0.5)), 16, 8)[[1, 4, 16]] == pytest.approx(
        [1.0, 2.0, 2.0]
    )
