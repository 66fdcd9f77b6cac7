"""The forecast of a job: its workers, its start, and which jobs give workers up."""

from __future__ import annotations

import pytest

from elasticdl.errors import SpecError
from elasticdl.scheduler import policies
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot
from elasticdl.sim.forecast import AllocationChange, Forecast, forecast_job
from elasticdl.sim.interface import ChangeCost
from elasticdl.sim.traces.recorded import AssumedScalingModel

NODES = (NodeInfo("n0", 4), NodeInfo("n1", 4))


def running(name: str, workers: dict[str, int], left_s: float | None = None, **more: int) -> JobInfo:
    """Returns a job that ends in this many seconds with its current workers."""
    count = sum(workers.values())
    fields = {"min_workers": count, "max_workers": count} | more
    running_job = {"rates": AssumedScalingModel(count, 1.0), "work_left": left_s} if left_s is not None else {}
    return JobInfo(name, 1.0, requested=count, workers=workers, started_at=1.0, **fields, **running_job)  # type: ignore[arg-type]


def new_job(policy: str, job: JobInfo, *others: JobInfo) -> Forecast:
    return forecast_job(policies.load_policy(policy), Snapshot(100.0, NODES, others), job, ChangeCost(0.0, 0.0, 0.0))


def test_a_job_that_fits_starts_at_once_and_takes_nothing() -> None:
    forecast = new_job("fifo-gang", JobInfo("mine", 100.0, 2, 2), running("other", {"n0": 4}, 50.0))

    assert (forecast.wait_s, forecast.workers, forecast.nodes, forecast.changes) == (0.0, 2, {"n1": 2}, ())


def test_a_gang_waits_until_a_job_ends_that_leaves_enough_room() -> None:
    others = running("short", {"n0": 4}, 30.0), running("long", {"n1": 4}, 500.0)
    forecast = new_job("fifo-gang", JobInfo("mine", 100.0, 4, 4), *others)

    assert (forecast.wait_s, forecast.workers, forecast.nodes) == (pytest.approx(30.0), 4, {"n0": 4})
    assert "wait" in forecast.reason or forecast.reason
    assert forecast.jobs_of_unknown_length == ()


def test_an_elastic_job_takes_spare_workers_from_other_jobs() -> None:
    other_job = running("wide", {"n0": 4, "n1": 4}, 500.0, min_workers=1)
    forecast = new_job("max-min", JobInfo("mine", 100.0, 1, 4), other_job)

    assert forecast.wait_s == 0.0 and forecast.workers >= 1
    (change,) = forecast.changes
    assert (change.job, change.workers_without_job, change.workers_with_job) == ("wide", 8, 8 - forecast.workers)
    assert isinstance(change, AllocationChange) and change.reason


def test_a_job_of_higher_priority_goes_first() -> None:
    forecast = new_job(
        "fifo-gang", JobInfo("mine", 100.0, 8, 8, priority=9), running("wide", {"n0": 4, "n1": 4}, 500.0)
    )

    assert (forecast.wait_s, forecast.workers) == (0.0, 8)
    assert [(change.job, change.workers_with_job) for change in forecast.changes] == [("wide", 0)]


def test_unknown_lengths_are_reported() -> None:
    forecast = new_job("fifo-gang", JobInfo("mine", 100.0, 8, 8), running("riddle", {"n0": 4}))

    assert forecast.wait_s is not None and forecast.wait_s > 0
    assert forecast.jobs_of_unknown_length == ("riddle",)


def test_a_job_that_never_fits_is_rejected() -> None:
    forecast = new_job("fifo-gang", JobInfo("mine", 100.0, 9, 9))

    assert forecast.is_rejected and forecast.wait_s is None
    assert "can never run here" in forecast.reason


def test_other_resources_are_considered_for_later_starts_too() -> None:
    nodes = (NodeInfo("n0", 4, resources={"memory": 4.0}),)
    other_job = JobInfo(
        "other",
        1.0,
        1,
        1,
        workers={"n0": 1},
        request={"memory": 3.0},
        rates=AssumedScalingModel(1, 1.0),
        work_left=40.0,
    )
    snapshot = Snapshot(100.0, nodes, (other_job,))
    forecast = forecast_job(
        policies.load_policy("fifo-gang"),
        snapshot,
        JobInfo("mine", 100.0, request={"memory": 2.0}),
        ChangeCost(0.0, 0.0, 0.0),
    )

    assert forecast.wait_s == pytest.approx(40.0)


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(SpecError, match="give the new one another name"):
        new_job("fifo-gang", JobInfo("same", 100.0), running("same", {"n0": 1}))
