"""Pollux: the whole decision."""

from __future__ import annotations

from itertools import pairwise

import pytest

from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.policies.pollux import Pollux
from elasticdl.scheduler.snapshot import JobInfo, PlacementConstraint, Snapshot, SpeedSample
from tests.unit.scheduler.cases import Concave, applied, counts, decide, job, nodes, running, workers_of

QUICK = Pollux(population=24, generations=24)


def measured(name: str, max_workers: int, power: float = 0.8, **more: object) -> JobInfo:
    sample = SpeedSample(1, max_workers, 8, 0.1, 0.1)
    return job(name, 1, 16, rates=Concave(power), speeds=(sample,), **more)  # type: ignore[arg-type]


def test_equal_snapshots_and_memories_give_equal_plans_and_a_new_round_draws_again() -> None:
    jobs = [measured(f"j{index}", 4) for index in range(6)]

    first, second = (decide(QUICK, nodes(4, 4, 4), *jobs) for _ in range(2))

    assert workers_of(first) == workers_of(second)
    assert first.memory.round == 0 and decide(QUICK, nodes(4, 4, 4), *jobs, memory=first.memory).memory.round == 1


def test_jobs_that_scale_well_get_more() -> None:
    decision = counts(decide(QUICK, nodes(4, 4), measured("good", 8, 0.95), measured("bad", 8, 0.2)))

    assert decision["good"] > decision["bad"] >= 1


def test_a_job_gets_at_most_twice_what_it_was_measured_with_and_one_worker_at_first() -> None:
    decision = counts(decide(QUICK, nodes(8), measured("seen", 2, 1.0), job("new", 1, 8)))

    assert decision == {"seen": 4, "new": 1}


def test_an_equally_good_plan_does_not_replace_the_current_one() -> None:
    """All jobs have the workers they can use."""
    full = [running(f"j{index}", {f"n{index}": 4}, 1, 4, speeds=(SpeedSample(1, 4, 8, 0.1, 0.1),)) for index in (0, 1)]

    assert workers_of(decide(QUICK, nodes(4, 4), *full)) == {"j0": {"n0": 4}, "j1": {"n1": 4}}


def test_plans_are_extended_until_no_device_is_idle() -> None:
    jobs = tuple(measured(f"j{index}", 8, 0.5 + index / 10) for index in range(5))
    snapshot, decision = Snapshot(1000.0, nodes(4, 4, 4), jobs), Decision(plan=None)  # type: ignore[arg-type]
    sums = []
    for _ in range(5):
        decision = QUICK.decide(snapshot, decision.memory)
        snapshot = applied(snapshot, decision.plan, later_s=60.0)
        sums.append(sum(job_info.worker_count for job_info in snapshot.jobs))

    assert all(after >= before - 1 for before, after in pairwise(sums))
    assert sums[-1] == 12


def test_a_job_that_just_arrived_starts_on_free_devices() -> None:
    assert counts(decide(QUICK, nodes(4), job("a", 2, 4, submitted_at=100.0), now=100.0)) == {"a": 2}


def test_workers_on_a_shrunken_or_lost_node_are_dropped() -> None:
    shrank = running("shrank", {"n0": 4}, 1, 8)
    gone = running("gone", {"n9": 2}, 1, 8)

    decision = workers_of(decide(QUICK, nodes(2, 2), shrank, gone))

    assert all(decision.values())
    assert "n9" not in decision["gone"]


@pytest.mark.parametrize("seed", range(3))
def test_constraints_and_kinds_of_devices_are_respected(seed: int) -> None:
    """Demands, kinds and memory: `decide` checks all rules."""
    cluster = (
        *nodes(4, 4, kind="t4", rack="r0"),
        *(job_info for job_info in nodes(0, 0, 4, kind="a100") if job_info.devices),
    )
    jobs = [
        measured("picky", 4, constraints=(PlacementConstraint(1, "t4", same_rack=True),)),
        measured("a100", 4, kinds=("a100",)),
        measured("plain", 4),
    ]

    decision = decide(Pollux(population=16, generations=8, seed=seed), cluster, *jobs)

    assert all(count for count in counts(decision).values())
