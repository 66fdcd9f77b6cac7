"""The watchdog fires never with progress, always in bounded time without it, and replaces only stalled workers."""

from __future__ import annotations

import signal

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.master.machine import events as ev
from elasticdl.master.machine import stalls
from elasticdl.master.machine.actions import Action, WriteLogEntry
from elasticdl.master.machine.membership import WorkerState
from elasticdl.master.machine.stalls import (
    NOTICE_FRACTION,
    SLOW_FACTOR,
    ReportedActivity,
    StallLimits,
    compute_limits,
    used_fraction,
)
from elasticdl.master.ps_fleet.ps_events import TaskAssigned
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobKind, PsId, TimingSpec, WorkerId
from elasticdl.stacks import DUMP_SIGNAL
from tests.unit.master.driver import Driver, job_spec, launched_workers, log_kinds, running, sent_messages, sent_signals

STALL_S = 60.0
TIMING = TimingSpec(stall_timeout_s=STALL_S)


def training(workers: int = 2, budget: int = 3, min_workers: int = 1, timing: TimingSpec = TIMING) -> Driver:
    driver = Driver(job_spec(workers=workers, budget=budget, min_workers=min_workers, timing=timing))
    driver.join(*(f"worker-{number}" for number in range(workers)))
    driver.enter()
    return driver


def beat(
    driver: Driver,
    worker: str,
    activity: pb.Activity.ValueType,
    activity_s: float,
    blocked_s: float = 0.0,
    *,
    pause_reason: str = "",
    slow_step_s: float = 0.1,
    joined_round: int | None = None,
) -> list[Action]:
    heartbeat = driver.heartbeat(worker, step=1)
    return driver.do(
        heartbeat._replace(
            activity=activity,
            activity_s=activity_s,
            blocked_s=blocked_s,
            pause_reason=pause_reason,
            slow_step_s=slow_step_s,
            joined_round=driver.newest.id if joined_round is None else joined_round,
        )
    )


def reasons(actions: list[Action], kind: str) -> list[str]:
    return [
        action.entry.reason for action in actions if isinstance(action, WriteLogEntry) and action.entry.kind == kind
    ]


# ---- one worker


def test_a_worker_that_did_not_arrive_is_noticed_then_replaced_and_the_others_continue() -> None:
    driver = training(3)
    for number in (0, 2):
        beat(driver, f"worker-{number}", pb.EXCHANGING, 29.0, 29.0)
    assert not log_kinds(beat(driver, "worker-1", pb.COMPUTING, 29.0, 29.0))

    actions = beat(driver, "worker-1", pb.COMPUTING, 31.0, 31.0)
    (reason,) = reasons(actions, "worker-stalled")
    assert reason == "has been blocked for 31 s in step 1; 60 s are allowed; its stacks are in logs/worker-1.log"
    assert sent_messages(actions, "worker-1", "dump_stacks")
    assert not sent_signals(actions)
    assert driver.machine.state.ledger.membership.workers[WorkerId("worker-1")].stall_reason

    for number in (0, 2):
        assert not sent_signals(beat(driver, f"worker-{number}", pb.EXCHANGING, 61.0, 61.0))
    actions = beat(driver, "worker-1", pb.COMPUTING, 60.5, 60.5)
    assert sent_signals(actions) == [("worker-1", signal.SIGKILL)]
    assert "made no progress: has been blocked for 60 s" in reasons(actions, "worker-lost")[0]
    assert driver.newest.workers == ("worker-0", "worker-2"), "the others do not wait for its exit"
    assert driver.newest.is_forced
    assert driver.machine.state.ledger.failure_budget.spent == 1

    driver.beat("worker-1", step=1)  # before the signal reaches it
    assert driver.state_of("worker-1") is WorkerState.LOST
    driver.exit("worker-1", signal=9)
    assert launched_workers(driver.enter(step=2)) == ["worker-3"]
    assert driver.machine.state.ledger.failure_budget.spent == 1, "its exit is not another failure"
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_a_noticed_worker_that_makes_progress_is_not_replaced() -> None:
    driver = training()
    beat(driver, "worker-0", pb.COMPUTING, 40.0, 40.0)
    actions = beat(driver, "worker-0", pb.EXCHANGING, 0.1)
    assert log_kinds(actions) == ["worker-recovered"]
    assert not driver.worker("worker-0").stall_reason
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_a_worker_with_a_pause_reason_has_unlimited_time() -> None:
    driver = training()
    assert not beat(driver, "worker-0", pb.COMPUTING, 1e6, 1e6, pause_reason="compiles the model")
    assert not beat(driver, "worker-1", pb.EXCHANGING, 1e6, 1e6)


def test_slow_usual_steps_make_the_limit_longer() -> None:
    driver = training()
    assert not beat(driver, "worker-0", pb.COMPUTING, 70.0, 70.0, slow_step_s=10.0), "20 steps are 200 s"
    assert log_kinds(beat(driver, "worker-0", pb.COMPUTING, 101.0, 101.0, slow_step_s=10.0)) == ["worker-stalled"]


def test_a_worker_that_is_not_blocked_has_more_time_and_so_has_a_first_step() -> None:
    driver = training()
    assert not beat(driver, "worker-0", pb.COMPUTING, 170.0, 1.0), "an evaluation of the user's, perhaps"
    assert not beat(driver, "worker-1", pb.FIRST_STEP, 170.0, 170.0)
    assert log_kinds(beat(driver, "worker-0", pb.COMPUTING, 181.0, 1.0)) == ["worker-stalled"]
    assert log_kinds(beat(driver, "worker-1", pb.FIRST_STEP, 181.0, 181.0)) == ["worker-stalled"]
    assert sent_signals(beat(driver, "worker-1", pb.FIRST_STEP, 361.0, 361.0)) == [("worker-1", signal.SIGKILL)]


def test_a_timeout_of_zero_turns_the_watchdog_off() -> None:
    driver = training(timing=TimingSpec(stall_timeout_s=0))
    assert not beat(driver, "worker-0", pb.COMPUTING, 1e9, 1e9)


def test_a_newcomer_that_receives_no_state_is_replaced_and_the_round_is_planned_without_it() -> None:
    driver = training(2)
    driver.do(ev.ScaleRequested(3))
    driver.join("worker-2")
    assert driver.newest.workers == ("worker-0", "worker-1", "worker-2")
    beat(driver, "worker-2", pb.RECEIVING, 181.0, 181.0, joined_round=0)
    actions = beat(driver, "worker-2", pb.RECEIVING, 361.0, 361.0, joined_round=0)
    assert sent_signals(actions) == [("worker-2", signal.SIGKILL)]
    assert driver.newest.workers == ("worker-0", "worker-1")
    assert not driver.newest.is_forced, "the others are not disturbed"


def test_a_worker_that_starts_for_long_but_is_not_blocked_is_noticed_but_not_replaced() -> None:
    driver = training(2)
    driver.do(ev.ScaleRequested(3))
    driver.connect("worker-2")
    (reason,) = reasons(beat(driver, "worker-2", pb.STARTING, 200.0, 1.0, joined_round=0), "worker-stalled")
    assert reason.startswith("is starting for 200 s; its stacks are in")
    assert not beat(driver, "worker-2", pb.STARTING, 1e6, 300.0, joined_round=0)


def test_a_worker_that_is_blocked_while_it_starts_is_replaced() -> None:
    driver = training(1)
    driver.exit("worker-0", signal=9)
    driver.connect("worker-1")
    (reason,) = reasons(beat(driver, "worker-1", pb.STARTING, 181.0, 181.0, joined_round=0), "worker-stalled")
    assert reason.startswith(
        "is starting for 181 s and has been blocked for 181 s; 360 s are allowed; its stacks are in"
    )
    actions = beat(driver, "worker-1", pb.STARTING, 361.0, 361.0, joined_round=0)
    assert sent_signals(actions) == [("worker-1", signal.SIGKILL)]
    driver.exit("worker-1", signal=9)
    assert launched_workers(driver.wait(5.0)) == ["worker-2"]
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_a_worker_of_lease_training_that_is_blocked_while_it_starts_is_replaced() -> None:
    driver = Driver(job_spec(kind=JobKind.EVALUATION, workers=1, timing=TIMING))
    driver.connect("worker-0")
    assert log_kinds(beat(driver, "worker-0", pb.STARTING, 1e6, 1.0, joined_round=0)) == ["worker-stalled"]
    assert not beat(driver, "worker-0", pb.STARTING, 1e6, 300.0, joined_round=0)
    assert sent_signals(beat(driver, "worker-0", pb.STARTING, 1e6, 361.0, joined_round=0)) == [
        ("worker-0", signal.SIGKILL)
    ]


def test_no_worker_is_noticed_while_rows_are_restored() -> None:
    driver = training(2)
    driver.machine.state.ledger.fleet.task = TaskAssigned("restore", 2, PsId("ps-0"), PsId("ps-0"), (), "")
    driver._handle(driver.heartbeat("worker-0", step=1)._replace(activity=pb.COMPUTING, activity_s=1e6, blocked_s=1e6))
    assert stalls.decide_round_stall(driver.machine.state, driver.now) is None


def test_an_only_worker_that_sends_no_heartbeats_is_noticed_then_replaced() -> None:
    driver = training(1)
    beat(driver, "worker-0", pb.COMPUTING, 1.0)
    assert not log_kinds(driver.wait(170.0))
    actions = driver.wait(15.0)
    (reason,) = reasons(actions, "worker-stalled")
    assert reason.startswith("has sent no heartbeat for 184 s; 360 s are allowed; its stacks are in")
    assert sent_signals(actions) == [("worker-0", DUMP_SIGNAL)]
    assert not sent_signals(driver.wait(170.0))
    assert sent_signals(driver.wait(10.0)) == [("worker-0", signal.SIGKILL)]
    assert "made no progress: has sent no heartbeat for 364 s" in driver.worker("worker-0").reason
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_an_only_worker_that_is_heard_again_continues() -> None:
    driver = training(1)
    beat(driver, "worker-0", pb.COMPUTING, 1.0)
    driver.wait(200.0)
    assert log_kinds(beat(driver, "worker-0", pb.COMPUTING, 2.0)) == ["worker-recovered"]
    assert not log_kinds(driver.wait(100.0))


def test_silence_does_not_count_while_the_master_was_away_or_held_up() -> None:
    driver = training(1)
    beat(driver, "worker-0", pb.COMPUTING, 1.0)
    driver.now += 1e6
    driver.machine.state.observed.forgive_silence(driver.now)
    assert not log_kinds(driver.do())


# ---- all of them


def test_workers_that_stall_together_are_one_failure_and_restart_from_the_checkpoint() -> None:
    driver = training(4, budget=1)
    for number in range(4):
        beat(driver, f"worker-{number}", pb.COMPUTING, 31.0, 31.0)
    killed = []
    for number in range(4):
        killed += sent_signals(beat(driver, f"worker-{number}", pb.COMPUTING, 61.0, 61.0))
    assert [worker for worker, _ in killed] == [f"worker-{number}" for number in range(4)]
    assert driver.machine.state.ledger.failure_budget.spent == 1
    assert driver.phase == "running"
    driver.wait(5.0)
    driver.join("worker-4", "worker-5", "worker-6", "worker-7")
    assert driver.newest.reason == "all members were lost; resumes from the newest checkpoint"


def test_a_job_that_always_stalls_at_the_same_step_fails_and_names_the_step() -> None:
    driver = training(1, budget=3)
    for number in range(4):
        beat(driver, f"worker-{number}", pb.COMPUTING, 31.0, 31.0)
        beat(driver, f"worker-{number}", pb.COMPUTING, 61.0, 61.0)
        driver.exit(f"worker-{number}", signal=9)
        driver.wait(61.0)
        if driver.phase == "running":
            driver.join(f"worker-{number + 1}")
    assert driver.phase == "failed"
    assert "workers failed 4 times, 3 are allowed; last worker-3 made no progress: has been blocked" in driver.reason


def test_a_job_whose_workers_are_all_stalled_does_not_wait_for_one_to_save_its_state() -> None:
    driver = training(2, budget=0)
    for worker in ("worker-0", "worker-1"):
        beat(driver, worker, pb.COMPUTING, 31.0, 31.0)
    actions = beat(driver, "worker-0", pb.COMPUTING, 61.0, 61.0)
    assert not sent_messages(actions, "worker-1", "save_state")
    assert driver.phase == "failed"
    assert "made no progress" in driver.reason


def test_if_a_job_fails_because_of_a_stalled_worker_another_one_saves_its_state() -> None:
    driver = training(2, budget=0)
    beat(driver, "worker-1", pb.EXCHANGING, 31.0, 31.0)
    beat(driver, "worker-0", pb.COMPUTING, 31.0, 31.0)
    assert sent_messages(beat(driver, "worker-0", pb.COMPUTING, 61.0, 61.0), "worker-1", "save_state")


def test_an_exchange_of_all_members_that_does_not_end_is_restarted_and_no_worker_is_killed() -> None:
    driver = training(2)
    beat(driver, "worker-0", pb.EXCHANGING, 61.0, 61.0)
    actions = beat(driver, "worker-1", pb.EXCHANGING, 60.0, 60.0)
    assert log_kinds(actions)[0] == "round-stalled"
    assert not sent_signals(actions)
    assert driver.newest.id == 2
    assert driver.newest.is_forced
    assert sent_messages(actions, "worker-0", "dump_stacks")


def test_rounds_that_stall_one_after_another_end_the_job() -> None:
    driver = training(2)
    for _ in range(stalls.MAX_STALLED_ROUNDS):
        assert driver.phase == "running"
        beat(driver, "worker-0", pb.EXCHANGING, 61.0)
        beat(driver, "worker-1", pb.EXCHANGING, 61.0)
    driver.wait(0.1)
    driver.export("worker-0")  # its state is saved before it ends
    assert driver.phase == "failed"
    assert "3 rounds in a row completed no step after step 1: all members have been in the exchange" in driver.reason


# ---- entering


def test_a_forced_round_is_formed_again_without_its_late_workers() -> None:
    driver = training(3)
    driver.exit("worker-2", signal=9)
    assert driver.newest.workers == ("worker-0", "worker-1")
    beat(driver, "worker-0", pb.ENTERING, 29.0)
    beat(driver, "worker-1", pb.COMPUTING, 29.0, joined_round=1)
    assert not log_kinds(driver.wait(20.0)).count("round-stalled")
    actions = driver.wait(13.0)
    assert reasons(actions, "round-stalled") == ["without worker-1, not ready 33 s after the round was planned"]
    assert driver.newest.workers == ("worker-0",)
    assert driver.state_of("worker-1") is WorkerState.STARTING, "it joins again when it can"
    assert sent_messages(actions, "worker-1", "reset")
    assert driver.phase == "running"
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_a_round_whose_process_group_cannot_be_formed_is_planned_again_with_all_members() -> None:
    driver = training(2)
    driver.do(ev.RoundFailed(WorkerId("worker-0"), driver.sequence("worker-0"), 1, "reset"))
    driver.wait(0.4)
    planned = driver.newest.id
    beat(driver, "worker-0", pb.ENTERING, 31.0, joined_round=0)
    beat(driver, "worker-1", pb.ENTERING, 31.0, joined_round=0)
    driver.wait(33.0)
    assert driver.newest.id == planned + 1
    assert driver.newest.workers == ("worker-0", "worker-1")


def test_a_round_that_loads_its_first_state_has_unlimited_time() -> None:
    driver = Driver(job_spec(timing=TIMING))
    driver.join("worker-0", "worker-1")
    beat(driver, "worker-0", pb.ENTERING, 1000.0, pause_reason="loads the first state")
    beat(driver, "worker-1", pb.ENTERING, 1000.0)
    assert not log_kinds(driver.wait(1000.0)).count("round-stalled")


# ---- the core, by properties

ages = st.floats(0, 1e5, allow_nan=False)
activities = st.sampled_from(list(pb.Activity.values()))
reports = st.builds(ReportedActivity, activities, ages, ages, st.booleans(), st.integers(0, 3))


@given(reports, st.floats(1.0, 1e4), st.integers(1, 50), st.floats(0, 1e3))
def test_no_worker_is_replaced_before_the_timeout_and_a_multiple_of_the_usual_step(
    report: ReportedActivity, stall_s: float, stall_steps: int, slow_step_s: float
) -> None:
    limits = compute_limits(stall_s, stall_steps, slow_step_s)
    assert limits.blocked_s >= stall_s
    assert limits.blocked_s >= stall_steps * slow_step_s
    if used_fraction(report, limits) >= 1.0:
        assert max(report.activity_s, report.blocked_s) >= limits.blocked_s
        assert report.activity not in (pb.EXCHANGING, pb.WAITING, pb.ENTERING, pb.UNKNOWN)
        assert not report.is_paused


@given(st.lists(st.tuples(st.floats(0.01, 50.0), st.floats(0.0, 0.9)), min_size=1, max_size=50))
def test_the_watchdog_never_fires_while_steps_end(steps: list[tuple[float, float]]) -> None:
    """Steps of any length up to the limit, of which any part is computing."""
    limits = compute_limits(60.0, 20, max(length for length, _ in steps))
    for length, part in steps:
        computing = ReportedActivity(pb.COMPUTING, length * part, length * part, False, 1)
        exchanging = ReportedActivity(pb.EXCHANGING, length, length, False, 1)
        assert used_fraction(computing, limits) < NOTICE_FRACTION or length >= 30.0
        assert used_fraction(computing, limits) < 1.0
        assert not stalls.is_exchange_stalled(1, [computing, exchanging], limits)
        assert not stalls.is_exchange_stalled(1, [exchanging, exchanging], limits)


@given(st.sampled_from([pb.COMPUTING, pb.READING, pb.FIRST_STEP, pb.RECEIVING]), st.floats(1.0, 1e4))
def test_the_watchdog_always_fires_within_a_bounded_time_without_progress(
    activity: pb.Activity.ValueType, stall_s: float
) -> None:
    limits = compute_limits(stall_s, 20, 0.0)
    assert limits == StallLimits(stall_s, SLOW_FACTOR * stall_s)
    moving = ReportedActivity(activity, SLOW_FACTOR * stall_s * 1.001, 0.0, False, 1)
    assert used_fraction(moving, limits) >= 1.0
    assert used_fraction(moving._replace(activity_s=SLOW_FACTOR * stall_s * 0.501), limits) >= NOTICE_FRACTION


@given(st.lists(st.tuples(activities, ages, ages, st.booleans()), min_size=2, max_size=4))
def test_only_workers_that_used_up_their_time_are_killed(reports: list[tuple[int, float, float, bool]]) -> None:
    driver = training(len(reports), budget=100)
    limits = compute_limits(STALL_S, 20, 0.1)
    killed: set[str] = set()
    guilty = set()
    for number, (activity, activity_s, blocked_s, is_paused) in enumerate(reports):
        worker = f"worker-{number}"
        if used_fraction(ReportedActivity(activity, activity_s, blocked_s, is_paused, 1), limits) >= 1.0:
            guilty.add(worker)
        pause_reason = "evaluates" if is_paused else ""
        actions = beat(
            driver, worker, pb.Activity.ValueType(activity), activity_s, blocked_s, pause_reason=pause_reason
        )
        killed |= {name for name, _ in sent_signals(actions)}
    assert killed == guilty
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_heartbeats_without_an_activity_cause_no_notice() -> None:
    driver = running(2)
    driver.beat("worker-0", step=1)
    driver.beat("worker-1", step=1)
    assert not log_kinds(driver.do())
