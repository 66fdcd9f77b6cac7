"""Turns, packing, moving and growing."""

from __future__ import annotations

from typing import Any

from elasticdl.scheduler.policies.gandiva import Gandiva
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot
from tests.unit.scheduler.cases import applied, counts, decide, job, nodes, running, workers_of

POLICY = Gandiva()


def turns(cluster: tuple[NodeInfo, ...], *jobs: JobInfo, times: int) -> list[dict[str, int]]:
    memory: Any = None
    snapshot, decisions = Snapshot(0.0, cluster, jobs), []
    for _ in range(times):
        decision = POLICY.decide(snapshot, memory)
        decisions.append({name: count for name, count in counts(decision).items() if count})
        snapshot, memory = applied(snapshot, decision.plan, 60.0), decision.memory
    return decisions


def test_a_job_that_does_not_fit_takes_turns_with_one_that_does() -> None:
    assert turns(nodes(4), job("a", 4), job("b", 4), times=4) == [{"a": 4}, {"b": 4}, {"a": 4}, {"b": 4}]


def test_a_large_job_has_its_turn_among_small_ones() -> None:
    ran = turns(nodes(4), *(job(f"s{index}", 1) for index in range(4)), job("large", 4), times=4)

    assert [("large" in decision) for decision in ran] == [True, False, True, False]


def test_a_new_job_waits_until_the_current_turn_ends() -> None:
    first = decide(POLICY, nodes(4), job("a", 4), now=60.0)
    jobs = running("a", {"n0": 4}, 4), job("b", 4, submitted_at=70.0)

    assert counts(decide(POLICY, nodes(4), *jobs, memory=first.memory, now=70.0)) == {"a": 4, "b": 0}
    assert counts(decide(POLICY, nodes(4), *jobs, memory=first.memory, now=120.0)) == {"a": 4, "b": 0}
    assert first.memory.turns_by_job == {"a": 1}


def test_a_job_goes_back_to_where_it_was() -> None:
    first = decide(POLICY, nodes(2, 2), running("a", {"n1": 2}, 2), job("b", 4), now=0.0)
    second = decide(POLICY, nodes(2, 2), job("a", 2), job("b", 4), memory=first.memory, now=60.0)
    third = decide(
        POLICY, nodes(2, 2), job("a", 2), running("b", {"n0": 2, "n1": 2}, 4), memory=second.memory, now=120.0
    )

    assert counts(second) == {"a": 0, "b": 4}
    assert workers_of(third)["a"] == {"n1": 2}


def test_a_new_job_goes_to_jobs_of_its_size_then_to_an_empty_node() -> None:
    cluster, pair = nodes(4, 4, 4), running("pair", {"n1": 2}, 2)

    assert workers_of(decide(POLICY, cluster, pair, job("alike", 2, submitted_at=1.0)))["alike"] == {"n1": 2}
    assert workers_of(decide(POLICY, cluster, pair, job("other", 1, submitted_at=1.0)))["other"] == {"n0": 1}


def test_two_jobs_of_low_use_are_packed_while_a_job_waits() -> None:
    host, guest = (
        job("host", 4, may_share=True, device_use=0.6),
        job("guest", 4, may_share=True, device_use=0.3, submitted_at=1.0),
    )

    plan = decide(POLICY, nodes(4), host, guest).plan

    assert counts(plan) == {"host": 4, "guest": 4}
    assert plan.allocations["host"].share + plan.allocations["guest"].share == 1.0
    assert plan.allocations["guest"].share >= 0.3 and plan.allocations["host"].share >= 0.6
    assert plan.allocations["guest"].reason == "4 workers, packed with host on the same devices (33%)"


def test_two_jobs_of_high_use_are_not_packed() -> None:
    jobs = job("a", 4, may_share=True, device_use=0.6), job("b", 4, may_share=True, device_use=0.6, submitted_at=1.0)

    assert counts(decide(POLICY, nodes(4), *jobs)) == {"a": 4, "b": 0}


def test_a_spread_job_is_consolidated_when_a_job_leaves() -> None:
    spread, leaving = running("spread", {"n0": 2, "n1": 2}, 4), running("leaves", {"n1": 2}, 2)
    first = decide(POLICY, nodes(4, 4), spread, leaving, now=0.0)

    then = decide(POLICY, nodes(4, 4), spread, memory=first.memory, now=10.0)

    assert workers_of(first)["spread"] == {"n0": 2, "n1": 2}
    assert len(workers_of(then)["spread"]) == 1


def test_an_almost_empty_node_is_cleared_when_a_job_leaves() -> None:
    jobs = running("one", {"n0": 1}), running("three", {"n1": 3}, 3), running("leaves", {"n0": 3}, 3)
    first = decide(POLICY, nodes(4, 4), *jobs, now=0.0)

    then = decide(POLICY, nodes(4, 4), *jobs[:2], memory=first.memory, now=10.0)

    assert workers_of(then)["one"] == {"n1": 1}


def test_elastic_jobs_grow_on_their_node_after_a_time_without_waiting_jobs() -> None:
    elastic, guest = job("elastic", 1, 8, requested=1), job("other", 2)

    ran = turns(nodes(4, 4), elastic, guest, times=2)

    assert ran == [{"elastic": 1, "other": 2}, {"elastic": 4, "other": 2}]


def test_a_guest_needs_memory_and_a_host_without_another_guest() -> None:
    little: dict[str, Any] = {"may_share": True, "device_use": 0.2}
    cluster = (NodeInfo("n0", 2, resources={"memory": 3.0}),)
    host, heavy = job("host", 2, request={"memory": 1.0}, **little), job("heavy", 2, request={"memory": 1.0}, **little)

    assert counts(decide(POLICY, cluster, heavy, host)) == {"heavy": 2, "host": 0}
    three = [job(name, 2, submitted_at=float(time_s), **little) for time_s, name in enumerate("abc")]
    assert counts(decide(POLICY, nodes(2), *three)) == {"a": 2, "b": 2, "c": 0}
