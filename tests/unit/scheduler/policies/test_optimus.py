"""Optimus: one worker for each job, then the next one to the job that gains the most."""

from __future__ import annotations

from itertools import product

import pytest

from elasticdl.scheduler.policies.optimus import Optimus
from elasticdl.scheduler.snapshot import JobInfo, PlacementConstraint
from tests.unit.scheduler.cases import Concave, counts, decide, job, nodes, running, workers_of


def measured(name: str, left: float, power: float = 0.8, **more: object) -> JobInfo:
    return job(name, 1, 8, rates=Concave(power, apart=1.0), work_left=left, **more)  # type: ignore[arg-type]


def test_every_job_gets_one_worker_before_any_gets_two() -> None:
    jobs = [measured("long", 1e6), *(measured(f"short{index}", 1.0) for index in range(3))]

    assert counts(decide(Optimus(), nodes(4), *jobs)) == {"long": 1, "short0": 1, "short1": 1, "short2": 1}


def test_if_devices_are_scarce_the_earliest_jobs_get_them() -> None:
    jobs = [measured("late", 1e6, submitted_at=2.0), measured("early", 1.0, submitted_at=1.0)]

    assert counts(decide(Optimus(), nodes(1), *jobs)) == {"early": 1, "late": 0}


def test_the_next_worker_goes_to_the_job_it_shortens_most() -> None:
    """By hand, powers of 1: from one to two workers a half is saved, 500 and 150; then a third of 500 is 167."""
    jobs = [measured("long", 1000.0, 1.0), measured("short", 300.0, 1.0)]

    assert counts(decide(Optimus(), nodes(3), *jobs)) == {"long": 2, "short": 1}
    assert counts(decide(Optimus(), nodes(4), *jobs)) == {"long": 3, "short": 1}
    assert counts(decide(Optimus(), nodes(5), *jobs)) == {"long": 3, "short": 2}


@pytest.mark.parametrize("devices", [4, 7, 11, 16])
def test_the_sum_of_remaining_times_is_minimal(devices: int) -> None:
    """Speeds are concave: greedy is exact. Compared with all ways to share the devices."""
    jobs = [measured("a", 900.0, 0.5), measured("b", 500.0, 0.8), measured("c", 300.0, 0.95)]

    def remaining_s(sizes: tuple[int, ...]) -> float:
        return sum(job_info.work_left / size**job_info.rates.power for job_info, size in zip(jobs, sizes, strict=True))  # type: ignore[union-attr]

    counts_now = counts(decide(Optimus(), nodes(devices), *jobs))
    best = min(remaining_s(sizes) for sizes in product(range(1, 9), repeat=3) if sum(sizes) <= devices)

    assert remaining_s((counts_now["a"], counts_now["b"], counts_now["c"])) == pytest.approx(best)


def test_workers_that_would_slow_a_job_down_stay_free() -> None:
    job_info = job("a", 1, 4, rates=Concave(0.5, apart=0.3), work_left=100.0)

    assert counts(decide(Optimus(), nodes(1, 1, 1, 1), job_info)) == {"a": 1}


def test_gain_is_measured_per_device() -> None:
    """The wide job saves more with each worker, but less with each device."""
    wide = job("wide", 1, 2, rates=Concave(1.0), work_left=1000.0, devices=4)
    thin = job("thin", 1, 8, rates=Concave(1.0), work_left=500.0)

    assert counts(decide(Optimus(), nodes(8), wide, thin)) == {"wide": 1, "thin": 4}


def test_only_allowed_sizes_are_given() -> None:
    job_info = job("a", 2, 8, rates=Concave(1.0), work_left=100.0, sizes=(2, 4, 8))

    assert counts(decide(Optimus(), nodes(7), job_info)) == {"a": 4}


def test_a_job_that_keeps_its_number_of_workers_keeps_its_nodes() -> None:
    stays = running("stays", {"n1": 1}, 1, 1, rates=Concave(), work_left=100.0)
    comes = measured("comes", 1e4)

    workers = workers_of(decide(Optimus(), nodes(2, 2), stays, comes))

    assert workers["stays"] == {"n1": 1}
    assert workers["comes"] == {"n0": 2, "n1": 1}


def test_the_smallest_are_placed_first_on_the_emptiest_nodes() -> None:
    small, large = measured("small", 1.0), measured("large", 1e4, submitted_at=-0.0)

    workers = workers_of(decide(Optimus(), nodes(2, 4), small, large))

    assert workers == {"small": {"n1": 1}, "large": {"n1": 3, "n0": 2}}


def test_unknown_jobs_are_assumed_linear_with_as_much_work_left_as_done() -> None:
    done = job("done", 1, 4, work_done=1e5)
    fresh = job("fresh", 1, 4)

    assert counts(decide(Optimus(), nodes(5), done, fresh)) == {"done": 4, "fresh": 1}


def test_constraints_are_met_and_devices_that_do_not_fit_go_to_other_jobs() -> None:
    cluster = (*nodes(2, kind="t4"), *(job_info for job_info in nodes(1, 2) if job_info.name == "n1"))
    picky = job(
        "picky", 1, 4, rates=Concave(1.0), work_left=1e6, constraints=(PlacementConstraint(1, "t4"),), kinds=("t4",)
    )
    other_job = job("other", 1, 4, rates=Concave(1.0), work_left=1.0)

    workers = workers_of(decide(Optimus(), cluster, picky, other_job))

    assert workers["picky"] == {"n0": 2} and workers["other"] == {"n1": 1}


def test_a_job_that_did_not_fit_moves_no_job_while_nothing_changes() -> None:
    cluster = (*nodes(3, kind="t4"), *(job_info for job_info in nodes(1, 3) if job_info.name == "n1"))
    jobs = [job("a", 1, 6, kinds=("t4",), work_done=1e6), job("b", 1, 6, kinds=("t4",), work_done=1e5)]
    first = decide(Optimus(), cluster, *jobs)

    after = [
        running(job_info.name, first.plan.workers_of(job_info.name), 1, 6, kinds=("t4",), work_done=job_info.work_done)
        for job_info in jobs
    ]
    again = decide(Optimus(), cluster, *after, memory=first.memory)

    assert workers_of(again) == workers_of(first)
