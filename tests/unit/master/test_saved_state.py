"""A job that has failed saves its state before it ends."""

from __future__ import annotations

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import Action
from elasticdl.spec import WorkerId
from tests.unit.master.driver import Driver, job_spec, running, sent_messages


def fail(driver: Driver, worker: str, *, wrong_job: bool = False, permanent: bool = True) -> list[Action]:
    event = ev.WorkerFailed(WorkerId(worker), driver.sequence(worker), f"bad record of {worker}", wrong_job, permanent)
    return driver.do(event)


def write(driver: Driver, worker: str, step: int) -> list[Action]:
    path = f"/checkpoints/checkpoint-{step:09d}"
    return driver.do(ev.CheckpointWritten(WorkerId(worker), driver.sequence(worker), step, path, 0.1, 0.0))


def test_a_healthy_worker_leaves_its_round_and_saves_the_state_and_the_reason_says_how_to_resume() -> None:
    driver = running(3)

    actions = fail(driver, "worker-0", wrong_job=True)
    assert sent_messages(actions, "worker-1", "save_state") and sent_messages(actions, "worker-1", "export")
    assert not sent_messages(actions, "worker-0", "save_state") and not sent_messages(actions, "worker-2", "release")
    assert driver.phase == "stopping"
    write(driver, "worker-1", 7)
    actions = driver.export("worker-1")

    assert driver.phase == "failed"
    assert "bad record of worker-0" in driver.reason
    assert "the state of step 7 is in /checkpoints/checkpoint-000000007: resume from it with --resume" in driver.reason
    assert getattr(driver.machine.state.ledger.phase, "exit_code", None) == 2
    assert all(sent_messages(actions, f"worker-{number}", "release") for number in range(3))


def test_workers_with_more_steps_are_asked_first_to_save_the_state() -> None:
    driver = running(3)
    driver.beat("worker-1", step=4)
    driver.beat("worker-2", step=5)

    assert sent_messages(fail(driver, "worker-0"), "worker-2", "save_state")


def test_each_holder_is_asked_once_and_the_failed_one_last() -> None:
    driver = running(3)
    assert sent_messages(fail(driver, "worker-0"), "worker-1", "save_state")
    assert sent_messages(driver.exit("worker-1", code=1), "worker-2", "save_state")
    assert sent_messages(fail(driver, "worker-2"), "worker-0", "save_state"), "it could not write it"

    fail(driver, "worker-0")

    assert driver.phase == "failed"
    assert "no worker was left to save its state" in driver.reason


def test_the_only_worker_saves_the_state_itself() -> None:
    driver = running(1)

    assert sent_messages(fail(driver, "worker-0"), "worker-0", "save_state")
    driver.export("worker-0")

    assert driver.phase == "failed"


def test_an_exhausted_budget_does_not_lose_the_state() -> None:
    driver = running(2, budget=0)

    actions = driver.exit("worker-1", code=1)

    assert sent_messages(actions, "worker-0", "save_state")
    driver.export("worker-0")
    assert driver.phase == "failed"
    assert "workers failed 1 times, 0 are allowed" in driver.reason


def test_no_worker_is_waited_for_beyond_the_deadline() -> None:
    driver = running(2)
    fail(driver, "worker-0")

    timing, checkpoint = driver.spec.timing, driver.spec.checkpoint
    while driver.phase == "stopping" and driver.now < 5000:
        for worker in ("worker-0", "worker-1"):
            driver.beat(worker)
        driver.wait(1.0)

    assert driver.phase == "failed"
    assert "was not written in time" in driver.reason
    assert driver.now - 1000 >= timing.grace_period_s + checkpoint.retry_s


def test_a_state_that_is_already_in_a_checkpoint_is_not_saved_again() -> None:
    driver = running(2)
    write(driver, "worker-0", 1)

    actions = fail(driver, "worker-0")

    assert driver.phase == "failed"
    assert not sent_messages(actions, "worker-1", "save_state")
    assert "the state of step 1 is in" in driver.reason


def test_a_job_without_any_update_ends_at_once() -> None:
    driver = Driver(job_spec(workers=2))
    driver.join("worker-0", "worker-1")

    fail(driver, "worker-0")

    assert driver.phase == "failed"


def test_a_restarted_master_asks_again() -> None:
    driver = running(2)
    fail(driver, "worker-0")

    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()
    assert sent_messages(driver.connect("worker-1", ready=True), "worker-1", "save_state")


def test_no_round_is_formed_while_the_state_is_saved() -> None:
    driver = running(2)
    fail(driver, "worker-0")
    before = driver.newest.id

    driver.do(ev.RoundFailed(WorkerId("worker-1"), driver.sequence("worker-1"), before, "asked to save the state"))
    driver.wait(1.0)

    assert driver.newest.id == before


def test_the_others_continue_at_once_without_a_worker_that_reports_a_failure() -> None:
    driver = running(3)

    fail(driver, "worker-0", permanent=False)

    assert driver.phase == "running"
    assert driver.newest.is_forced and driver.newest.workers == ("worker-1", "worker-2")


def test_if_all_workers_fail_no_round_begins_before_they_have_exited() -> None:
    driver = running(2)
    fail(driver, "worker-0", permanent=False)
    assert driver.newest.workers == ("worker-1",)
    driver.connect("worker-2")
    driver.ready("worker-2")

    fail(driver, "worker-1", permanent=False)
    driver.wait(0.1)

    assert driver.newest.workers != ("worker-2",), "its holders are saving the state"
