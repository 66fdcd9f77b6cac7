"""The states of a worker, as in design 0002."""

from __future__ import annotations

import signal

import pytest

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.membership import WorkerState
from elasticdl.spec import WorkerId
from tests.unit.master.driver import (
    START,
    Driver,
    job_spec,
    launched_workers,
    log_kinds,
    running,
    sent_messages,
    sent_signals,
)


def test_the_desired_number_of_workers_is_launched_with_new_ids() -> None:
    driver = Driver(job_spec(workers=3))

    assert [worker.id for worker in driver.machine.state.ledger.membership.active_workers()] == [
        "worker-0",
        "worker-1",
        "worker-2",
    ]


def test_nothing_is_launched_before_the_launcher_listed_its_replicas() -> None:
    driver = Driver(job_spec())
    driver.machine.state.observed.has_launcher = False

    assert launched_workers(driver.exit("worker-0", signal=signal.SIGKILL)) == []


def test_a_worker_passes_from_launching_to_member() -> None:
    driver = Driver(job_spec(workers=1))
    states = [driver.state_of("worker-0")]
    driver.connect("worker-0")
    states.append(driver.state_of("worker-0"))
    driver.ready("worker-0")
    states.append(driver.state_of("worker-0"))

    assert states == [WorkerState.LAUNCHING, WorkerState.STARTING, WorkerState.MEMBER]


def test_a_newcomer_is_joining_until_its_round_is_entered() -> None:
    driver = running(1, max_workers=2)
    driver.do(ev.ScaleRequested(2))
    driver.join("worker-1")

    assert driver.state_of("worker-1") is WorkerState.JOINING
    driver.enter(step=5)
    assert driver.state_of("worker-1") is WorkerState.MEMBER


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_preempted_worker_is_replaced_once_the_others_continue_and_is_no_failure(number: int) -> None:
    driver = running(2)

    assert launched_workers(driver.exit("worker-1", signal=number)) == []
    assert driver.state_of("worker-1") is WorkerState.LOST
    assert driver.worker("worker-1").reason.startswith("preempted")
    assert launched_workers(driver.enter(step=5)) == ["worker-2"]
    assert driver.machine.state.ledger.failure_budget.spent == 0


def test_a_replacement_does_not_wait_long_for_others_to_recover() -> None:
    driver = running(2)
    driver.exit("worker-1", signal=signal.SIGKILL)

    assert launched_workers(driver.wait(0.5)) == []
    assert launched_workers(driver.wait(0.6)) == ["worker-2"]


def test_the_last_worker_is_replaced_at_once() -> None:
    driver = running(1)

    assert launched_workers(driver.exit("worker-0", signal=signal.SIGKILL)) == ["worker-1"]


def test_a_crashed_worker_is_replaced_after_a_delay_that_doubles() -> None:
    driver = Driver(job_spec(workers=1, budget=9))
    delays = []
    for number in range(3):
        driver.exit(f"worker-{number}", code=1)
        crashed_at = driver.now
        while f"worker-{number + 1}" not in driver.machine.state.ledger.membership.workers:
            driver.wait(0.25)
        delays.append(driver.now - crashed_at)

    assert delays == [1.0, 2.0, 4.0]


def test_a_failed_worker_that_said_goodbye_is_replaced_only_after_its_exit_and_the_delay() -> None:
    driver = Driver(job_spec(workers=1))
    driver.connect("worker-0")
    driver.do(ev.WorkerFailed(WorkerId("worker-0"), driver.sequence("worker-0"), "no such class", False, False))

    assert launched_workers(driver.goodbye("worker-0", "no such class")) == []
    assert launched_workers(driver.exit("worker-0", code=1)) == []
    assert launched_workers(driver.wait(1.0)) == ["worker-1"]


def test_a_worker_that_keeps_failing_exhausts_the_budget_and_its_error_is_the_reason() -> None:
    driver = Driver(job_spec(workers=1, budget=1))
    driver.exit("worker-0", code=1)
    driver.wait(1.0)
    driver.connect("worker-1")
    driver.do(ev.WorkerFailed(WorkerId("worker-1"), 1, "no module named x", False, False))

    driver.exit("worker-1", code=3)

    assert driver.phase == "failed"
    assert "workers failed 2 times, 1 are allowed" in driver.reason
    assert "code 3: no module named x" in driver.reason
    assert "worker-1.log" in driver.reason


@pytest.mark.parametrize(("wrong_job", "exit_code"), [(True, 2), (False, 1)])
def test_a_permanent_failure_ends_the_job_once_its_state_is_saved(wrong_job: bool, exit_code: int) -> None:
    driver = running(2)

    driver.do(ev.WorkerFailed(WorkerId("worker-0"), driver.sequence("worker-0"), "bad", wrong_job, True))
    actions = driver.export("worker-1")

    assert driver.phase == "failed"
    assert "bad" in driver.reason
    assert getattr(driver.machine.state.ledger.phase, "exit_code", None) == exit_code
    assert sent_messages(actions, "worker-1", "release")


def test_an_exit_without_goodbye_is_a_crash_even_with_code_0() -> None:
    driver = running(2)

    driver.exit("worker-1", code=0)

    assert driver.state_of("worker-1") is WorkerState.LOST
    assert driver.machine.state.ledger.failure_budget.spent == 1


def test_a_worker_that_exits_after_goodbye_has_left() -> None:
    driver = running(2)
    driver.leave("worker-1")
    driver.enter(step=7)
    driver.goodbye("worker-1")

    driver.exit("worker-1", code=0)

    assert driver.state_of("worker-1") is WorkerState.LEFT
    assert driver.machine.state.ledger.failure_budget.spent == 0


def test_a_repeated_message_is_handled_once_and_acknowledged_again() -> None:
    driver = running(2)
    message = ev.CheckpointWritten(WorkerId("worker-0"), driver.sequence("worker-0"), 5, "path", 0.1, 0.0)

    first, second = driver.do(message), driver.do(message)

    assert log_kinds(first) == ["checkpoint"]
    assert log_kinds(second) == []
    assert sent_messages(second, "worker-0", "acknowledged")[0].acknowledged.sequence == message.sequence


def test_scaling_down_lets_the_youngest_leave_first() -> None:
    driver = running(3)

    actions = driver.do(ev.ScaleRequested(1))

    assert sent_messages(actions, "worker-1", "leave") and sent_messages(actions, "worker-2", "leave")
    assert not sent_messages(actions, "worker-0", "leave")
    assert driver.newest.workers == ("worker-0",)


def test_scaling_down_ends_a_worker_without_a_session_by_a_signal() -> None:
    driver = running(1, max_workers=2)
    driver.do(ev.ScaleRequested(2))

    actions = driver.do(ev.ScaleRequested(1))
    driver.exit("worker-1", signal=signal.SIGTERM)

    assert sent_signals(actions) == [("worker-1", signal.SIGTERM)]
    assert driver.state_of("worker-1") is WorkerState.LEFT


def test_scaling_up_launches_the_difference() -> None:
    driver = running(2)

    assert launched_workers(driver.do(ev.ScaleRequested(4))) == ["worker-2", "worker-3"]


def test_a_worker_that_does_not_leave_within_its_grace_period_is_killed() -> None:
    driver = running(2, min_workers=2)
    driver.leave("worker-1")
    actions = []
    for step in range(2, 2 + int(driver.spec.timing.grace_period_s) + 1):
        driver.now += 1.0
        actions += driver.do(*(driver.heartbeat(worker, step=step) for worker in ("worker-0", "worker-1")))

    assert sent_signals(actions) == [("worker-1", signal.SIGKILL)]


def test_an_external_worker_joins_and_its_id_is_not_reused() -> None:
    driver = running(1)

    driver.join("worker-1")
    driver.enter(step=3)
    driver.do(ev.ScaleRequested(3))

    assert driver.state_of("worker-1") is WorkerState.MEMBER
    assert driver.worker("worker-1").is_external
    assert "worker-2" in driver.machine.state.ledger.membership.workers


def test_an_external_worker_whose_connection_broke_is_lost_after_a_short_time() -> None:
    driver = running(1, max_workers=2)
    driver.join("worker-1")
    driver.now += 5.0
    driver.beat("worker-0", step=9)
    driver.beat("worker-1", step=9)
    driver.do(ev.SessionLost(WorkerId("worker-1")))

    driver.now += driver.spec.timing.heartbeat_timeout_s
    driver.beat("worker-0", step=99)

    assert driver.state_of("worker-1") is WorkerState.LOST


def test_a_broken_stream_of_a_launched_worker_is_no_loss_yet() -> None:
    driver = running(2)

    driver.do(ev.SessionLost(WorkerId("worker-1")))

    assert driver.state_of("worker-1") is WorkerState.MEMBER


def test_a_restarted_external_worker_is_a_new_worker_with_the_same_name() -> None:
    driver = running(1, max_workers=2)
    driver.join("worker-1")
    driver.enter(step=2)

    actions = driver.connect("worker-1", pid=999)

    assert driver.state_of("worker-1") is WorkerState.STARTING
    assert driver.worker("worker-1").sequence == 0
    assert sent_messages(actions, "worker-0", "round")[0].round.forced
    assert driver.newest.workers == ("worker-0",)


def test_a_restarted_master_launches_again_what_never_started_and_removes_dead_workers() -> None:
    driver = running(2)
    driver.do(ev.ReplicaStarted("worker-0", 11), ev.ReplicaStarted("worker-1", 12), ev.ScaleRequested(3))
    driver.do(ev.MasterStarted(2))

    actions = driver.do(ev.ReplicasListed((("worker-0", 11),), (ev.ReplicaExit("worker-1", 12, None, 9),)))

    assert "worker-2" in launched_workers(actions)
    assert driver.state_of("worker-1") is WorkerState.LOST
    assert driver.newest.workers == ("worker-0",)


def test_late_messages_of_an_exited_process_do_not_bring_it_back() -> None:
    driver = running(2)
    driver.exit("worker-1", signal=signal.SIGKILL)

    driver.connect("worker-1")

    assert driver.state_of("worker-1") is WorkerState.LOST


def test_workers_do_not_count_as_silent_while_they_reconnect_to_a_restarted_master() -> None:
    driver = running(2)
    driver.now = START + 100
    driver.do(ev.MasterStarted(2), ev.ReplicasListed((("worker-0", 1), ("worker-1", 2)), ()))

    driver.wait(1.5)

    assert driver.state_of("worker-1") is WorkerState.MEMBER


def test_a_worker_with_another_instruction_set_is_logged() -> None:
    driver = running(1, max_workers=2)

    for name, capability in (("worker-0", "AVX512"), ("worker-1", "AVX2")):
        driver.do(ev.WorkerConnected(WorkerId(name), 7, "host", "a", "b", 0, -1, False, False, capability))

    (entry,) = [e for e in driver.machine.state.ledger.recent_entries if e.kind == "cpu-differs"]
    assert entry.replica == "worker-1"
    assert "--cpu_capability" in entry.reason
