"""The speeds of a job by numbers of workers and machines, measured from heartbeats."""

from __future__ import annotations

import json

import pytest

from elasticdl.master.machine import events as ev
from elasticdl.master.views.status import job_status
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import WorkerId
from tests.unit.master.driver import Driver, running

GLOBAL_BATCH = 64


def planned(workers: int = 2) -> Driver:
    driver = running(workers)
    plan = ev.DataPlanReported(WorkerId("worker-0"), driver.sequence("worker-0"), 100, 6400, 6400, 100, 0)
    driver.do(plan._replace(global_batch=GLOBAL_BATCH))
    return driver


def beat(driver: Driver, worker: str, step: int, step_s: float, compute_s: float, *, timed: int = 10) -> None:
    heartbeat = driver.heartbeat(worker, step=step)
    driver.do(
        heartbeat._replace(
            timed_steps=timed, one_pass_step_s=step_s, pass_s=compute_s, gradient_square=0.5, gradient_variance=4.0
        )
    )


def reported_speeds(driver: Driver) -> list[pb.SpeedStatus]:
    return list(job_status(driver.machine.state, driver.now).speeds)


def test_the_speed_of_a_round_is_that_of_all_its_members() -> None:
    driver = planned(2)
    beat(driver, "worker-0", 20, 0.2, 0.1)
    assert reported_speeds(driver) == [], "the other worker has sent no heartbeat"
    beat(driver, "worker-1", 21, 0.4, 0.15)

    (speed,) = reported_speeds(driver)
    assert (speed.nodes, speed.workers, speed.local_batch) == (1, 2, GLOBAL_BATCH // 2)
    assert speed.step_s == pytest.approx(0.3)
    assert speed.compute_s == 0.15, "the slowest is waited for"


def test_the_first_steps_of_a_round_do_not_count() -> None:
    driver = planned(1)
    beat(driver, "worker-0", 20, 0.2, 0.1, timed=1)

    assert reported_speeds(driver) == []


def test_machines_are_counted_by_host_name() -> None:
    driver = planned(2)
    driver.worker("worker-1").host = "elsewhere"
    beat(driver, "worker-0", 20, 0.2, 0.1)
    beat(driver, "worker-1", 21, 0.2, 0.1)

    assert [speed.nodes for speed in reported_speeds(driver)] == [2]


def test_the_local_batch_is_that_of_the_worker_with_the_most_records() -> None:
    driver = planned(3)  # four logical ranks: two, one and one
    for number in range(3):
        beat(driver, f"worker-{number}", 20 + number, 0.2, 0.1)

    assert [speed.local_batch for speed in reported_speeds(driver)] == [GLOBAL_BATCH // 2]


def test_each_number_of_workers_has_its_own_speed() -> None:
    driver = planned(1)
    beat(driver, "worker-0", 20, 0.2, 0.1)
    driver.do(ev.ScaleRequested(2))
    driver.join("worker-1")
    driver.enter(step=30)
    for number in range(2):
        beat(driver, f"worker-{number}", 40 + number, 0.15, 0.05)

    assert [(speed.workers, speed.step_s) for speed in reported_speeds(driver)] == [(1, 0.2), (2, pytest.approx(0.15))]


def test_a_changed_speed_is_smoothed_and_not_journaled_too_often() -> None:
    driver = planned(1)
    beat(driver, "worker-0", 20, 0.2, 0.1)
    driver.now += 1.0
    beat(driver, "worker-0", 21, 0.4, 0.1)
    assert [speed.step_s for speed in reported_speeds(driver)] == [0.2], "a second is too soon"
    driver.now += 10.0
    beat(driver, "worker-0", 22, 0.4, 0.1)

    assert [speed.step_s for speed in reported_speeds(driver)] == [pytest.approx(0.2 + 0.3 * 0.2)]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 0.0, -1.0])
def test_invalid_times_are_ignored(wrong: float) -> None:
    driver = planned(1)
    beat(driver, "worker-0", 20, wrong, 0.1)

    assert reported_speeds(driver) == []


def test_a_restarted_master_knows_all_speeds() -> None:
    driver = planned(1)
    beat(driver, "worker-0", 20, 0.2, 0.1)
    again = driver.replayed()

    assert again.dump_ledger() == driver.machine.dump_ledger()
    assert json.loads(again.dump_ledger())["speeds"] == [[1, 1, GLOBAL_BATCH, 0.2, 0.1]]
    speeds = again.state.ledger.speeds
    again.load_ledger(driver.machine.dump_ledger())
    assert again.state.ledger.speeds == speeds


def test_a_status_has_the_gradient_noise_of_the_newest_step() -> None:
    driver = planned(1)
    beat(driver, "worker-0", 20, 0.2, 0.1)
    status = job_status(driver.machine.state, driver.now)

    assert (status.gradient_square, status.gradient_variance, status.global_batch) == (0.5, 4.0, GLOBAL_BATCH)
