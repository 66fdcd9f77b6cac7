"""A-online: intervals that double, and the greatest weight in each."""

from __future__ import annotations

from dataclasses import replace

from elasticdl.scheduler.policies import load_policy
from elasticdl.scheduler.policies.aonline import AOnline
from elasticdl.scheduler.snapshot import JobInfo, Snapshot
from tests.unit.scheduler.cases import applied, counts
from tests.unit.scheduler.policies.rules import check, cluster

SLOT = 600.0


def job(name: str, slots: float, weight: float = 1.0) -> JobInfo:
    return JobInfo(name, 0.0, work_left=slots * SLOT, weight=weight)


def lengths(count: int) -> list[int]:
    """Returns the lengths of the intervals over this many decisions, one per slot."""
    seen, memory, interval_lengths = Snapshot(0.0, cluster(1, 1), (job("a", 1e9),)), None, []
    for _ in range(count):
        memory = AOnline(horizon_slots=4).decide(seen, memory).memory
        interval_lengths.append(memory.interval_slots)
        seen = replace(seen, now=seen.now + SLOT)
    return interval_lengths


def test_intervals_double_up_to_the_horizon() -> None:
    assert lengths(12) == [1, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4]


def test_the_heavier_of_two_jobs_is_accepted() -> None:
    decision = AOnline().decide(Snapshot(0.0, cluster(1, 1), (job("light", 0.9), job("heavy", 0.9, 5.0))), None)

    assert counts(decision.plan) == {"light": 0, "heavy": 1}


def test_of_equal_weights_the_one_that_needs_less_is_accepted() -> None:
    decision = AOnline().decide(Snapshot(0.0, cluster(1, 1), (job("long", 0.9), job("short", 0.2))), None)

    assert counts(decision.plan) == {"long": 0, "short": 1}


def test_a_job_too_long_for_this_interval_is_accepted_in_a_longer_one() -> None:
    seen = Snapshot(0.0, cluster(1, 1), (job("a", 2.0),))
    first = AOnline().decide(seen, None)
    second = AOnline().decide(applied(seen, first.plan, SLOT), first.memory)

    assert (set(first.memory.reserved), set(second.memory.reserved)) == (set(), {"a"})
    assert counts(first.plan) == {"a": 1}, "nobody reserved the device"


def test_a_job_that_arrives_within_an_interval_waits_for_the_next() -> None:
    seen = Snapshot(0.0, cluster(1, 1), (job("a", 0.9),))
    first = AOnline().decide(seen, None)
    later = applied(seen, first.plan, 1.0)
    second = AOnline().decide(replace(later, jobs=(*later.jobs, job("new", 0.1, 100.0))), first.memory)

    assert counts(second.plan) == {"a": 1, "new": 0}


def test_intervals_restart_when_all_known_jobs_have_ended() -> None:
    memory = AOnline().decide(Snapshot(0.0, cluster(1, 1), (job("a", 9.0),)), None).memory
    memory = AOnline().decide(Snapshot(SLOT, cluster(1, 1), (job("a", 9.0),)), memory).memory
    anew = AOnline().decide(Snapshot(SLOT + 1, cluster(1, 1), (job("b", 0.5),)), memory).memory

    assert (memory.interval_slots, anew.interval_slots) == (2, 1)


def test_no_rule_is_broken_on_random_clusters() -> None:
    for seed in range(30):
        check(load_policy("aonline"), seed)
