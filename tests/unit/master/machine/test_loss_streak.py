"""Losses without progress in between become failures; others remain preemptions."""

from __future__ import annotations

import signal

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import Action, WriteLogEntry
from elasticdl.master.machine.failure_budget import FREE_INCIDENTS, LossStreak
from elasticdl.spec import JobKind
from tests.unit.master.driver import Driver, job_spec, running

MIB = 1 << 20


def kill(driver: Driver, worker: str, cause: str = "", peak_bytes: int = 0) -> list[Action]:
    return driver.do(ev.ReplicaExited(ev.ReplicaExit(worker, 1, None, signal.SIGKILL, cause, "", peak_bytes)))


def reasons(actions: list[Action], kind: str = "worker-lost") -> list[str]:
    return [
        action.entry.reason for action in actions if isinstance(action, WriteLogEntry) and action.entry.kind == kind
    ]


def replace(driver: Driver, number: int) -> str:
    """Wait for the next worker, and let it get as far as the round."""
    worker = f"worker-{number}"
    driver.wait(61.0)
    driver.join(worker)
    driver.wait(2.0)
    return worker


def test_workers_that_are_killed_again_and_again_at_the_same_step_exhaust_the_budget() -> None:
    driver = running(1, budget=3)
    lost = [reasons(kill(driver, "worker-0", peak_bytes=300 * MIB))]
    for number in range(1, 6):
        assert driver.phase == "running", lost
        lost.append(reasons(kill(driver, replace(driver, number), peak_bytes=300 * MIB)))

    assert driver.phase == "failed"
    assert lost[0] == lost[1] == ["preempted: killed by SIGKILL (its memory peaked at 300 MiB)"]
    assert "loss 3 in a row with no progress since step 1" in lost[2][0]
    assert "they run out of memory, use a smaller --minibatch_size" in driver.reason
    assert "workers failed 4 times, 3 are allowed" in driver.reason
    assert "peaked at 300 MiB" in driver.reason
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_losses_with_steps_in_between_are_preemptions() -> None:
    driver = running(1, budget=0)
    kill(driver, "worker-0")
    for number in range(1, 20):
        worker = replace(driver, number)
        driver.enter(step=1 + number)
        kill(driver, worker)
    assert driver.phase == "running"
    assert driver.machine.state.ledger.failure_budget.spent == 0


def test_the_loss_of_all_workers_at_once_is_one_incident() -> None:
    driver = running(4, budget=0)
    for number in range(4):
        kill(driver, f"worker-{number}")
    assert driver.machine.state.ledger.loss_streak.incidents == 1
    assert driver.machine.state.ledger.failure_budget.spent == 0
    driver.wait(10.0)
    driver.join("worker-4", "worker-5", "worker-6", "worker-7")
    for number in range(4, 8):
        kill(driver, f"worker-{number}")
    assert driver.machine.state.ledger.loss_streak.incidents == 2
    assert driver.phase == "running"


def test_replacements_are_launched_with_growing_delays() -> None:
    driver = running(1, budget=100)
    kill(driver, "worker-0")
    pauses = []
    for number in range(1, 9):
        worker = replace(driver, number)
        kill(driver, worker)
        pauses.append(driver.machine.state.ledger.failure_budget.relaunch_at - driver.now)
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    replace(driver, 9)
    driver.enter(step=7)
    assert driver.machine.state.ledger.failure_budget.relaunch_at == 0.0, "the job got on"


def test_a_worker_killed_by_the_oom_killer_is_a_failure_at_once_and_the_reason_says_so() -> None:
    driver = running(1, budget=0)
    (reason,) = reasons(kill(driver, "worker-0", "oom", 2048 * MIB))
    assert reason.startswith("ran out of memory (its memory peaked at 2,048 MiB): the kernel killed it; use a smaller")
    assert driver.phase == "failed"
    assert reason in driver.reason


def test_workers_that_run_out_of_memory_at_once_are_one_failure() -> None:
    driver = running(4, budget=1)
    for number in range(4):
        kill(driver, f"worker-{number}", "oom")
    assert driver.machine.state.ledger.failure_budget.spent == 1
    assert driver.phase == "running"


def test_the_progress_of_a_job_with_leases_is_counted_in_records() -> None:
    driver = Driver(job_spec(kind=JobKind.EVALUATION, workers=1, budget=0, shard_records=10))
    driver.join("worker-0")
    driver.plan("worker-0", records=1000)
    for number in range(6):
        worker = f"worker-{number}"
        lease = driver.exchange(worker, 1).leases[0][2]
        driver.exchange(worker, 2, ev.LeaseReport(lease.id, 10, True, "", ()), want=1)
        kill(driver, worker)
        driver.wait(10.0)
        driver.join(f"worker-{number + 1}")
    assert driver.phase == "running", "ten records more each time"
    for number in range(6, 9):
        driver.wait(10.0)
        driver.join(f"worker-{number}")
        driver.exchange(f"worker-{number}", 1)
        kill(driver, f"worker-{number}")
    assert driver.phase == "failed"
    assert "no progress since record 60" in driver.reason


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=60))
def test_losses_become_failures_only_without_progress_and_then_after_a_bounded_number(
    events: list[tuple[int, int]],
) -> None:
    """(progress since the last loss, which of six workers is lost); each is replaced at once."""
    setbacks, progress, workers, next_worker = LossStreak(), 0, list(range(6)), 6
    losses = 0  # since the job got further
    for further, who in events:
        progress += further
        losses = 1 if further else losses + 1
        setbacks.add_loss(progress, workers[who], next_worker)
        assert setbacks.incidents <= losses
        assert not setbacks.is_failure or losses > FREE_INCIDENTS
        assert setbacks.is_failure or losses <= FREE_INCIDENTS * len(workers), "each incident has six losses at most"
        workers[who], next_worker = next_worker, next_worker + 1
