"""The end of a job: exported, stopped with a checkpoint, or stopped at once."""

from __future__ import annotations

import signal

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.membership import WorkerState
from elasticdl.spec import WorkerId
from tests.unit.master.driver import Driver, job_spec, log_kinds, running, sent_messages, sent_signals


def exporting() -> Driver:
    driver = Driver(job_spec(workers=2, output="/models/one"))
    driver.join("worker-0", "worker-1")
    driver.enter()
    return driver


def test_the_first_member_exports_once_all_have_finished() -> None:
    driver = exporting()
    assert not sent_messages(driver.finish("worker-1"), "worker-1", "export")

    actions = driver.finish("worker-0")

    assert sent_messages(actions, "worker-0", "export")[0].export.path == "/models/one"
    assert driver.phase == "running"


def test_all_workers_are_released_once_the_model_is_exported() -> None:
    driver = exporting()
    driver.finish("worker-0", "worker-1", reason="all steps are done")

    actions = driver.export("worker-0", "/models/one")

    assert driver.phase == "succeeded"
    assert sent_messages(actions, "worker-0", "release") and sent_messages(actions, "worker-1", "release")


def test_another_worker_exports_if_the_first_dies() -> None:
    driver = exporting()
    driver.finish("worker-0", "worker-1")

    actions = driver.exit("worker-0", signal=signal.SIGKILL)

    assert sent_messages(actions, "worker-1", "export")


def test_a_worker_that_was_silent_while_it_exported_still_counts_as_finished() -> None:
    driver = exporting()
    driver.finish("worker-0", "worker-1")
    for _ in range(6):
        driver.now += 0.75
        driver.beat("worker-1")
    assert driver.worker("worker-0").state is WorkerState.LOST
    assert driver.machine.state.ledger.export == ("worker-1", "/models/one")

    driver.now += 0.1
    actions = driver.beat("worker-0")
    assert log_kinds(actions) == ["worker-returned"] and not sent_messages(actions, "worker-0", "reset")
    actions = driver.export("worker-1", "/models/one")

    assert driver.phase == "succeeded"
    assert sent_messages(actions, "worker-0", "release")
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_a_finished_worker_drops_its_state_if_the_others_went_on_without_it() -> None:
    driver = exporting()
    driver.finish("worker-0")
    driver.exit("worker-1", signal=signal.SIGKILL)
    driver.do(ev.ReplicaFellSilent(WorkerId("worker-0"), "silent for 3.00 s"))
    driver.now += 1.0
    driver.join("worker-2", "worker-3")
    driver.enter()

    driver.now += 0.1
    actions = driver.beat("worker-0")

    assert sent_messages(actions, "worker-0", "reset")


def test_a_job_without_output_is_done_once_its_last_checkpoint_is_written() -> None:
    driver = running(2)

    actions = driver.finish("worker-0", "worker-1", step=100)
    assert sent_messages(actions, "worker-0", "export")[0].export.path == ""
    assert driver.phase == "running"
    driver.export("worker-0")

    assert driver.phase == "succeeded"
    assert driver.machine.state.ledger.records == 800


def test_a_member_that_lost_the_last_step_is_not_waited_for() -> None:
    driver = running(3)
    driver.finish("worker-0")
    driver.do(ev.RoundFailed(WorkerId("worker-1"), driver.sequence("worker-1"), driver.newest.id, ""))
    driver.exit("worker-2", signal=signal.SIGKILL)
    driver.export("worker-0")

    assert driver.phase == "succeeded"


def test_no_worker_is_launched_once_one_has_finished() -> None:
    driver = running(3)
    driver.finish("worker-0")

    driver.exit("worker-2", signal=signal.SIGKILL)

    assert "worker-3" not in driver.machine.state.ledger.membership.workers


def test_the_end_waits_for_the_last_evaluation() -> None:
    driver = running(1)
    driver.plan("worker-0", records=800, validation=5)
    driver.snapshot("worker-0", 100)
    driver.finish("worker-0")
    driver.export("worker-0")
    assert driver.phase == "running"

    answer = driver.exchange("worker-0", 1)
    driver.exchange("worker-0", 2, ev.LeaseReport(answer.leases[0][2].id, 5, True, "", ()), want=0)

    assert driver.phase == "succeeded"


def test_a_stop_lets_members_end_after_their_step_and_releases_the_others() -> None:
    driver = running(2)
    driver.do(ev.ScaleRequested(3))
    driver.connect("worker-2")

    actions = driver.do(ev.StopRequested(False, "Ctrl-C"))

    assert driver.phase == "stopping"
    assert sent_messages(actions, "worker-0", "stop")[0].stop.reason == "Ctrl-C"
    assert sent_messages(actions, "worker-2", "release")


def test_a_stopped_job_ends_when_all_members_have_finished() -> None:
    driver = running(2)
    driver.do(ev.StopRequested(False, "Ctrl-C"))

    actions = driver.finish("worker-0", "worker-1", step=42)
    assert sent_messages(actions, "worker-0", "export")[0].export.path == "", "a checkpoint, but no model"
    driver.export("worker-0")

    assert (driver.phase, driver.reason) == ("stopped", "Ctrl-C")
    assert getattr(driver.machine.state.ledger.phase, "exit_code", None) == 130


def test_survivors_of_a_loss_while_stopping_are_told_to_stop_again() -> None:
    driver = running(2, min_workers=2)
    driver.do(ev.StopRequested(False, "Ctrl-C"))

    actions = driver.exit("worker-1", signal=signal.SIGKILL)

    assert sent_messages(actions, "worker-0", "round")[0].round.forced
    assert sent_messages(actions, "worker-0", "stop")


def test_a_stop_that_takes_too_long_kills_the_workers() -> None:
    driver = running(2)
    driver.do(ev.StopRequested(False, "Ctrl-C"))
    actions = []
    for _ in range(int(driver.spec.timing.grace_period_s) + 1):
        driver.now += 1.0
        actions += driver.do(*(driver.heartbeat(worker) for worker in ("worker-0", "worker-1")))

    assert driver.phase == "stopped"
    assert ("worker-0", signal.SIGKILL) in sent_signals(actions)


def test_a_stop_at_once_kills() -> None:
    driver = running(2)

    actions = driver.do(ev.StopRequested(True, "second Ctrl-C"))

    assert driver.phase == "stopped"
    assert sent_signals(actions) == [("worker-0", signal.SIGKILL), ("worker-1", signal.SIGKILL)]


def test_a_job_that_has_not_started_stops_immediately() -> None:
    driver = Driver(job_spec())

    actions = driver.do(ev.StopRequested(False, "never mind"))

    assert [number for _, number in sent_signals(actions)] == [signal.SIGTERM] * 2, "who starts up hears nothing else"
    assert driver.phase == "stopped"


def test_a_closed_terminal_stops_the_job_cleanly() -> None:
    driver = running(2)

    driver.do(ev.TerminalDetached())

    assert driver.phase == "stopping"


def test_exits_after_the_end_do_not_count_as_failures() -> None:
    driver = running(2)
    driver.finish("worker-0", "worker-1")
    driver.export("worker-0")

    driver.exit("worker-0", code=1)
    driver.goodbye("worker-1")
    driver.exit("worker-1", code=0)

    assert driver.phase == "succeeded"
    assert driver.machine.state.ledger.failure_budget.spent == 0
    assert driver.state_of("worker-1") is WorkerState.LEFT
