"""Training by unmodified scripts: every change ends all scripts, then starts them again."""

from __future__ import annotations

import signal

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.membership import WorkerState
from elasticdl.master.strategies.scripts import GATHER_NEWCOMERS_S
from elasticdl.spec import ClusterSpec, JobKind, JobSpec, ScriptSpec, TimingSpec, WorkerId, WorkersSpec
from tests.unit.master.driver import Driver, log_kinds, sent_messages

SETTLE_S = TimingSpec().regroup_s + TimingSpec().heartbeat_timeout_s + 0.01


def ddp_spec(*, workers: int = 2, min_workers: int = 1, max_workers: int = 4, budget: int = 1) -> JobSpec:
    return JobSpec(
        name="job",
        kind=JobKind.SCRIPT,
        script=ScriptSpec(path="train.py", compat="ddp"),
        workers=WorkersSpec(replicas=workers, min=min_workers, max=max_workers, failure_budget=budget),
    )


def running(workers: int = 2, *, budget: int = 1, min_workers: int = 1, spec: JobSpec | None = None) -> Driver:
    """A job whose scripts run in round 1."""
    driver = Driver(spec or ddp_spec(workers=workers, min_workers=min_workers, budget=budget))
    driver.join(*(f"worker-{number}" for number in range(workers)))
    driver.enter(step=0)
    return driver


def beat_and_wait(driver: Driver, seconds: float, *workers: str) -> list[Action]:
    """Let time pass while these workers send heartbeats."""
    driver.now += seconds
    return driver.do(*(driver.heartbeat(worker, step=-1) for worker in workers))


def fail(driver: Driver, worker: str, reason: str = "exited with code 1: boom") -> list[Action]:
    return driver.do(ev.RoundFailed(WorkerId(worker), driver.sequence(worker), driver.newest.id, reason))


def say_ready(driver: Driver, *workers: str) -> list[Action]:
    return driver.do(
        *(ev.WorkerReady(WorkerId(worker), driver.sequence(worker), f"{worker}:again") for worker in workers)
    )


def test_the_first_round_starts_when_all_workers_are_ready() -> None:
    driver = Driver(ddp_spec(workers=2))

    assert not sent_messages(driver.join("worker-0"), "worker-0", "round")
    (message,) = sent_messages(driver.join("worker-1"), "worker-0", "round")

    assert [member.worker for member in message.round.members] == ["worker-0", "worker-1"]
    assert driver.phase == "running"


def test_ready_workers_do_not_wait_for_ever_for_the_others() -> None:
    driver = Driver(ddp_spec(workers=2))
    driver.join("worker-0")

    driver.wait(GATHER_NEWCOMERS_S)

    assert driver.newest.workers == ("worker-0",)


def test_a_newcomer_ends_all_scripts_and_the_next_round_waits_for_the_last_of_them() -> None:
    driver = running(2)
    driver.do(ev.ScaleRequested(3))

    halting = driver.join("worker-2")
    assert sent_messages(halting, "worker-0", "reset") and sent_messages(halting, "worker-1", "reset")
    assert not sent_messages(halting, "worker-2", "reset")

    say_ready(driver, "worker-1")
    assert driver.newest.id == 1, "the script of worker-0 may still write its checkpoint"
    (message,) = sent_messages(say_ready(driver, "worker-0"), "worker-2", "round")

    assert [member.worker for member in message.round.members] == ["worker-0", "worker-1", "worker-2"]
    assert message.round.members[0].store_address == "worker-0:again"


def test_a_killed_worker_restarts_the_other_scripts_and_is_no_failure() -> None:
    driver = running(2, budget=0)
    fail(driver, "worker-0", "exited with code 1: connection closed by peer")  # it notices before the launcher does

    halting = driver.exit("worker-1", signal=signal.SIGKILL)

    assert sent_messages(halting, "worker-0", "reset")
    assert driver.machine.state.ledger.failure_budget.spent == 0
    driver.join("worker-2")
    say_ready(driver, "worker-0")
    assert driver.newest.workers == ("worker-0", "worker-2")


def test_scripts_that_fail_together_count_as_one_failure() -> None:
    driver = running(2, budget=1)
    fail(driver, "worker-1", "exited with code 1: ValueError: boom")
    fail(driver, "worker-0", "exited with code 1: connection closed by peer")

    halting = beat_and_wait(driver, SETTLE_S, "worker-0", "worker-1")

    assert log_kinds(halting) == ["scripts-ended"]
    assert driver.machine.state.ledger.failure_budget.spent == 1
    say_ready(driver, "worker-0", "worker-1")
    assert driver.newest.id == 1, "the pause after a failure"
    driver.wait(1.0)
    assert driver.newest.id == 2


def test_the_job_fails_with_the_reason_of_the_script_when_the_budget_is_spent() -> None:
    driver = running(2, budget=0)
    fail(driver, "worker-1", "exited with code 1: ValueError: boom")

    beat_and_wait(driver, SETTLE_S, "worker-0", "worker-1")

    assert driver.phase == "failed"
    assert "last worker-1 exited with code 1: ValueError: boom; its log is logs/worker-1.log" in driver.reason


def test_the_reason_names_the_command_that_shows_the_log_of_a_pod() -> None:
    spec = ddp_spec(budget=0).model_copy(update={"cluster": ClusterSpec(image="train:1")})
    driver = running(spec=spec)
    fail(driver, "worker-1", "exited with code 1: ValueError: boom")

    beat_and_wait(driver, SETTLE_S, "worker-0", "worker-1")

    assert driver.reason.endswith("ValueError: boom; its log is `elasticdl logs job --worker 1`")


def test_scripts_that_succeeded_wait_for_the_others() -> None:
    driver = running(2)
    driver.finish("worker-0", step=0)
    assert driver.phase == "running"

    driver.finish("worker-1", step=0)

    assert driver.phase == "succeeded"


def test_the_loss_of_a_worker_whose_script_had_succeeded_changes_nothing() -> None:
    driver = running(2)
    driver.finish("worker-1", step=0)
    driver.exit("worker-1", signal=signal.SIGKILL)
    assert driver.newest.id == 1 and driver.machine.state.ledger.rounds.halted_at is None

    driver.finish("worker-0", step=0)

    assert driver.phase == "succeeded"


def test_a_loss_also_restarts_scripts_that_had_succeeded() -> None:
    driver = running(2)
    driver.finish("worker-1", step=0)

    halting = driver.exit("worker-0", signal=signal.SIGKILL)

    assert sent_messages(halting, "worker-1", "reset")
    say_ready(driver, "worker-1")
    assert driver.phase == "running"


def test_stop_waits_for_the_scripts_and_then_ends() -> None:
    driver = running(2)
    stopping = driver.do(ev.StopRequested(False, "elasticdl stop"))
    assert sent_messages(stopping, "worker-0", "stop") and sent_messages(stopping, "worker-1", "stop")

    driver.finish("worker-0", step=0, reason="elasticdl stop")
    assert driver.phase == "stopping"
    driver.finish("worker-1", step=0, reason="elasticdl stop")

    assert (driver.phase, driver.reason) == ("stopped", "elasticdl stop")


def test_the_next_round_waits_for_the_script_of_a_worker_that_was_scaled_away() -> None:
    driver = running(2)
    halting = driver.do(ev.ScaleRequested(1))
    assert sent_messages(halting, "worker-1", "leave") and sent_messages(halting, "worker-0", "reset")

    say_ready(driver, "worker-0")
    assert driver.newest.id == 1
    driver.goodbye("worker-1")

    assert driver.newest.workers == ("worker-0",)


def test_a_worker_that_does_not_become_ready_again_is_left_out_after_the_grace_period() -> None:
    driver = running(3)
    driver.exit("worker-2", signal=signal.SIGKILL)
    say_ready(driver, "worker-0")
    driver.join("worker-3")

    beat_and_wait(driver, TimingSpec().grace_period_s, "worker-0", "worker-3")

    assert driver.newest.workers == ("worker-0", "worker-3")


def test_fewer_workers_than_the_minimum_wait() -> None:
    driver = running(2, min_workers=2)
    driver.exit("worker-1", signal=signal.SIGKILL)
    say_ready(driver, "worker-0")

    beat_and_wait(driver, GATHER_NEWCOMERS_S, "worker-0")

    assert driver.newest.id == 1
    assert driver.state_of("worker-0") is WorkerState.READY


def test_restarting_an_external_worker_whose_script_had_succeeded_changes_nothing() -> None:
    driver = running(1)
    driver.join("worker-90")  # it was started by hand
    say_ready(driver, "worker-0")
    assert set(driver.newest.workers) == {"worker-0", "worker-90"}
    driver.finish("worker-90", step=0)

    driver.connect("worker-90", pid=7777)
    beat_and_wait(driver, SETTLE_S, "worker-0", "worker-90")

    assert driver.newest.id == 2 and driver.phase == "running"


HAPPENINGS = st.sampled_from(["kill", "fail", "ready", "finish", "leave", "join", "wait"])


@given(st.lists(st.tuples(HAPPENINGS, st.integers(0, 5))))
def test_replay_equals_live_and_no_round_starts_while_a_script_may_run(steps: list[tuple[str, int]]) -> None:
    driver = running(3, budget=20)
    for happening, number in steps:
        present = [worker.id for worker in driver.machine.state.ledger.membership.present_workers()]
        if driver.phase != "running" or not present:
            break
        worker, before = present[number % len(present)], driver.newest.id
        match happening:
            case "kill":
                driver.exit(worker, signal=signal.SIGKILL)
            case "fail":
                fail(driver, worker)
            case "ready" if driver.worker(worker).must_reset:
                say_ready(driver, worker)
            case "finish":
                driver.finish(worker, step=0)
            case "leave":
                driver.leave(worker)
            case "join" if not driver.worker(worker).reported_pid:
                driver.join(worker)
            case "wait":
                beat_and_wait(driver, 1.1, *present)
        if driver.newest.id > before and driver.phase == "running":
            ledger = driver.machine.state.ledger
            assert not [
                w.id for w in ledger.membership.present_workers() if w.must_reset and w.id in driver.newest.workers
            ]
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()
