from __future__ import annotations

import signal

import pytest

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.phase import FinalPhase
from elasticdl.master.runtime.metrics import PrometheusMetrics
from elasticdl.master.views.status import job_result, job_status
from elasticdl.spec import WorkerId
from tests.unit.master.driver import Driver, running


def trained() -> Driver:
    driver = running(2)
    driver.plan("worker-0", records=1600, steps=200)
    for step in (10, 20):
        driver.now += 1.0
        driver.beat("worker-0", step=step)
        driver.beat("worker-1", step=step)
    return driver


def test_a_status_has_progress_speed_and_workers() -> None:
    driver = trained()

    status = job_status(driver.machine.state, driver.now)

    assert (status.phase, status.step, status.total_steps, status.records) == ("running", 20, 200, 160)
    assert status.records_per_s == 80.0
    assert [(worker.id, worker.state, worker.rank, worker.logical_ranks) for worker in status.workers] == [
        ("worker-0", "member", 0, 2),
        ("worker-1", "member", 1, 2),
    ]


@pytest.mark.parametrize("kind", ["evaluation", "checkpoint", "epoch-ended"])
def test_a_status_names_a_lost_worker_after_any_number_of_routine_events(kind: str) -> None:
    driver = trained()
    driver.exit("worker-1", signal=signal.SIGKILL)
    for step in range(150):
        driver.machine.state.add_log_entry(driver.now + step, kind, step=step)

    status = job_status(driver.machine.state, driver.now)

    kinds = [event.kind for event in status.events]
    assert kinds.count("worker-lost") == 1 and kinds.count("started") == 1
    assert kinds[-100:] == [kind] * 100
    assert [event.at for event in status.events] == sorted(event.at for event in status.events)


def test_a_status_says_which_worker_was_lost_and_why() -> None:
    driver = trained()
    driver.exit("worker-1", signal=signal.SIGKILL)

    status = job_status(driver.machine.state, driver.now)

    lost = next(worker for worker in status.workers if worker.id == "worker-1")
    assert (lost.state, lost.rank) == ("lost", -1)
    assert "SIGKILL" in lost.reason
    assert "worker-lost" in [event.kind for event in status.events]


def test_a_speed_of_the_past_is_not_shown() -> None:
    driver = trained()

    assert job_status(driver.machine.state, driver.now + 10).records_per_s == 0.0


def test_a_result_says_how_the_job_ended_and_where_its_files_are() -> None:
    driver = trained()
    written = ev.CheckpointWritten(WorkerId("worker-0"), driver.sequence("worker-0"), 200, "/checkpoints/200", 0.1, 0.0)
    driver.do(written)
    driver.finish("worker-0", "worker-1", step=200)
    driver.export("worker-0")
    phase = driver.machine.state.ledger.phase
    assert isinstance(phase, FinalPhase)

    document = job_result(driver.machine.state, phase)

    assert (document["phase"], document["exit_code"], document["step"]) == ("succeeded", 0, 200)
    assert (document["records"], document["workers_joined"]) == (1600, 2)
    assert document["checkpoint"] == "/checkpoints/200"


def test_prometheus_sees_workers_by_state() -> None:
    driver = trained()
    metrics = PrometheusMetrics("job")

    metrics.observe(driver.machine.state, driver.now)

    assert metrics.registry.get_sample_value("elasticdl_workers", {"job": "job", "state": "member"}) == 2.0
    assert metrics.registry.get_sample_value("elasticdl_step", {"job": "job"}) == 20.0
