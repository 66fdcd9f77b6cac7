"""Rounds as in design 0002: planned, forced, and the messages to each member."""

from __future__ import annotations

import signal

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import LaunchReplica
from elasticdl.master.machine.membership import WorkerState
from elasticdl.master.machine.state import SUSPECT_NODE_S
from elasticdl.master.strategies.rounds import FAILING_FOR_S
from elasticdl.spec import WorkerId
from tests.unit.master.driver import Driver, job_spec, log_kinds, running, sent_messages


def quiet(driver: Driver, seconds: float, *alive: str, step: int = 1) -> None:
    """Let time pass with heartbeats of these workers and without a step."""
    for _ in range(round(seconds / 0.25)):
        driver.now += 0.25
        for worker in alive:
            driver.beat(worker, step=step)


def test_the_first_round_is_forced_and_has_all_addresses_and_logical_ranks() -> None:
    driver = Driver(job_spec(workers=2, ranks=5))

    actions = driver.join("worker-0", "worker-1")
    (message,) = sent_messages(actions, "worker-1", "round")

    assert message.round.forced
    assert [(m.worker, m.store_address, m.first_logical_rank, m.logical_ranks) for m in message.round.members] == [
        ("worker-0", "worker-0:store", 0, 3),
        ("worker-1", "worker-1:store", 3, 2),
    ]


def test_a_job_starts_with_its_minimum_after_a_moment() -> None:
    driver = Driver(job_spec(workers=2))
    driver.join("worker-0")
    assert driver.phase == "pending"

    driver.wait(1.0)

    assert driver.phase == "running"
    assert driver.newest.workers == ("worker-0",)


def test_a_newcomer_is_sent_its_donor_while_the_members_train() -> None:
    driver = running(2)
    driver.do(ev.ScaleRequested(3))

    actions = driver.join("worker-2")
    newcomer = sent_messages(actions, "worker-0", "round")[0].round.members[2]

    assert not driver.newest.is_forced
    assert (newcomer.worker, newcomer.donor, newcomer.donor_address) == ("worker-2", "worker-0", "worker-0:handover")
    assert driver.state_of("worker-0") is WorkerState.MEMBER


def test_a_leaving_worker_is_sent_the_round_without_it() -> None:
    driver = running(2)

    actions = driver.leave("worker-1")

    assert [m.worker for m in sent_messages(actions, "worker-1", "round")[0].round.members] == ["worker-0"]
    assert not driver.newest.is_forced


def test_the_goodbye_of_a_leaving_worker_shows_that_the_round_was_entered() -> None:
    driver = running(2, max_workers=2)
    driver.leave("worker-1")
    planned = driver.newest.id
    driver.goodbye("worker-1")

    driver.exit("worker-1", code=0)

    assert driver.newest.id == planned, "no forced round for a worker that left as planned"
    assert driver.machine.state.ledger.rounds.is_entered


def test_a_killed_member_forces_a_round_at_once() -> None:
    driver = running(3)

    actions = driver.exit("worker-1", signal=signal.SIGKILL)

    assert sent_messages(actions, "worker-0", "round")[0].round.forced
    assert driver.newest.workers == ("worker-0", "worker-2")


def test_a_newcomer_that_dies_while_joining_does_not_stop_the_members() -> None:
    driver = running(2)
    driver.do(ev.ScaleRequested(3))
    driver.join("worker-2")

    driver.exit("worker-2", signal=signal.SIGKILL)

    assert not driver.newest.is_forced
    assert driver.newest.workers == ("worker-0", "worker-1")


def test_a_failed_round_of_living_members_is_forced_again_after_regroup_s() -> None:
    driver = running(2)
    before = driver.newest.id
    for worker in ("worker-0", "worker-1"):
        driver.do(ev.RoundFailed(WorkerId(worker), driver.sequence(worker), before, "connection closed"))
    assert driver.newest.id == before

    driver.wait(driver.spec.timing.regroup_s + 0.01)

    assert driver.newest.id == before + 1
    assert driver.newest.is_forced and driver.newest.workers == ("worker-0", "worker-1")


def test_a_late_failure_of_the_round_before_does_not_break_the_forced_one() -> None:
    driver = running(3)
    before = driver.newest.id
    driver.exit("worker-2", signal=signal.SIGKILL)
    forced = driver.newest.id

    driver.do(ev.RoundFailed(WorkerId("worker-0"), driver.sequence("worker-0"), before, ""))
    driver.wait(1.0)

    assert driver.newest.id == forced


def test_if_a_planned_round_fails_while_it_is_entered_its_newcomers_may_hold_the_state() -> None:
    driver = running(1, max_workers=2)
    driver.do(ev.ScaleRequested(2))
    driver.join("worker-1")
    planned = driver.newest.id

    driver.do(ev.RoundFailed(WorkerId("worker-0"), driver.sequence("worker-0"), planned, ""))
    driver.wait(driver.spec.timing.regroup_s + 0.01)

    assert driver.newest.is_forced
    assert set(driver.newest.workers) == {"worker-0", "worker-1"}


def test_a_newcomer_that_is_not_in_the_forced_round_is_reset_when_its_own_round_fails() -> None:
    driver = running(2)
    driver.do(ev.ScaleRequested(3))
    driver.join("worker-2")
    planned = driver.newest.id
    driver.exit("worker-1", signal=signal.SIGKILL)

    actions = driver.do(ev.RoundFailed(WorkerId("worker-2"), driver.sequence("worker-2"), planned, ""))

    assert sent_messages(actions, "worker-2", "reset")
    assert driver.state_of("worker-2") is WorkerState.STARTING


def test_a_newcomer_whose_state_transfer_failed_begins_again_without_stopping_the_members() -> None:
    driver = running(2)
    driver.do(ev.ScaleRequested(3))
    driver.join("worker-2")

    actions = driver.do(ev.RoundFailed(WorkerId("worker-2"), driver.sequence("worker-2"), driver.newest.id, "reset"))
    driver.wait(1.0)

    assert sent_messages(actions, "worker-2", "reset")
    assert not driver.newest.is_forced and driver.newest.workers == ("worker-0", "worker-1")
    driver.ready("worker-2")
    assert not driver.newest.is_forced and "worker-2" in driver.newest.workers


def test_after_the_loss_of_all_members_the_job_restarts_with_new_workers() -> None:
    driver = running(2)
    driver.exit("worker-0", signal=signal.SIGKILL)
    driver.exit("worker-1", signal=signal.SIGKILL)

    driver.join("worker-2", "worker-3")

    assert driver.newest.is_forced
    assert driver.newest.workers == ("worker-2", "worker-3")


def test_too_few_survivors_wait_and_continue_with_a_newcomer() -> None:
    driver = running(2, min_workers=2)
    before = driver.newest.id
    driver.exit("worker-1", signal=signal.SIGKILL)
    assert driver.newest.id == before

    driver.join("worker-2")

    assert driver.newest.is_forced
    assert driver.newest.workers == ("worker-0", "worker-2")


def test_a_member_that_falls_silent_while_no_step_ends_is_lost() -> None:
    driver = running(2)
    quiet(driver, 3.0, "worker-0", "worker-1")

    quiet(driver, 1.0, "worker-0")

    assert driver.state_of("worker-1") is WorkerState.LOST
    assert driver.newest.workers == ("worker-0",)


def test_replacements_avoid_the_node_of_a_silent_worker_while_the_node_may_be_lost() -> None:
    driver = running(2)
    quiet(driver, 3.0, "worker-0", "worker-1")
    quiet(driver, 1.0, "worker-0")

    def launch(number: int) -> LaunchReplica:
        actions = driver.do(ev.ReplicaLaunched("worker", WorkerId(f"worker-{number}")))
        (launch,) = [
            action for action in actions if isinstance(action, LaunchReplica) and action.replica == f"worker-{number}"
        ]
        return launch

    assert launch(10).avoid_nodes_of == ("worker-1",)
    driver.now += SUSPECT_NODE_S
    assert launch(11).avoid_nodes_of == ()


def test_a_member_without_heartbeats_is_alive_as_long_as_steps_end() -> None:
    driver = running(2)
    quiet(driver, 3.0, "worker-0", "worker-1")

    for step in range(2, 30):
        driver.now += 0.25
        driver.beat("worker-0", step=step)

    assert driver.state_of("worker-1") is WorkerState.MEMBER


def test_the_only_holder_of_the_state_is_never_lost_by_silence() -> None:
    driver = running(1)
    quiet(driver, 3.0, "worker-0")

    quiet(driver, 30.0)

    assert driver.state_of("worker-0") is WorkerState.MEMBER


def test_no_worker_is_lost_while_all_are_silent() -> None:
    driver = running(3)
    quiet(driver, 3.0, "worker-0", "worker-1", "worker-2")

    quiet(driver, 600.0)  # the machine slept
    quiet(driver, 1.0, "worker-0", "worker-1", "worker-2")

    assert {driver.state_of(f"worker-{i}") for i in range(3)} == {WorkerState.MEMBER}


def test_a_step_that_is_reported_late_does_not_hide_a_silent_member() -> None:
    driver = running(2)
    quiet(driver, 3.0, "worker-0", "worker-1")
    driver.now += 0.2
    driver.beat("worker-0", step=2)  # ended before worker-1 fell silent

    quiet(driver, 1.0, "worker-0", step=2)

    assert driver.state_of("worker-1") is WorkerState.LOST


def test_a_lost_worker_that_is_heard_again_is_reset_and_joins_as_a_newcomer() -> None:
    driver = running(2, max_workers=2)
    quiet(driver, 3.0, "worker-0", "worker-1")
    quiet(driver, 1.0, "worker-0")
    driver.enter(step=2)

    driver.now += 0.1
    actions = driver.beat("worker-1")
    assert sent_messages(actions, "worker-1", "reset")
    assert driver.state_of("worker-1") is WorkerState.STARTING

    driver.ready("worker-1")
    assert driver.state_of("worker-1") is WorkerState.JOINING


def test_rounds_that_always_fail_are_logged_once_and_end_the_job() -> None:
    driver = running(2)
    began = driver.now
    while driver.phase == "running" and driver.now - began < 2 * FAILING_FOR_S:
        for worker in ("worker-0", "worker-1"):
            event = ev.RoundFailed(WorkerId(worker), driver.sequence(worker), driver.newest.id, "lengths differ")
            driver.do(event)
        quiet(driver, 0.5, "worker-0", "worker-1")
    driver.export("worker-0")

    assert driver.phase == "failed"
    assert "failed before a step ended" in driver.reason and "lengths differ" in driver.reason
    kinds = [entry.kind for entry in driver.machine.state.ledger.recent_entries]
    assert kinds.count("round-failed") == 1


def test_a_completed_step_resets_the_count_of_failed_rounds() -> None:
    driver = running(2)
    for _ in range(int(2 * FAILING_FOR_S)):
        driver.do(ev.RoundFailed(WorkerId("worker-0"), driver.sequence("worker-0"), driver.newest.id, "a cable"))
        quiet(driver, 1.0, "worker-0", "worker-1")
        driver.enter(step=2)

    assert driver.phase == "running"


def test_the_cost_of_a_round_is_the_longest_gap_of_its_members() -> None:
    driver = running(2)
    driver.exit("worker-1", signal=signal.SIGKILL)
    driver.do(ev.RoundEntered(WorkerId("worker-0"), driver.sequence("worker-0"), driver.newest.id, 5, 0.125))

    (entry,) = [e for e in driver.machine.state.ledger.recent_entries if e.kind == "round-entered"][1:]

    assert entry.cost_s == 0.125
    assert entry.reason == "without worker-1"


def test_a_heartbeat_shows_that_a_planned_round_was_entered() -> None:
    driver = running(1, max_workers=2)
    driver.do(ev.ScaleRequested(2))
    driver.join("worker-1")

    actions = driver.beat("worker-0", step=3, in_round=driver.newest.id)

    assert driver.state_of("worker-1") is WorkerState.MEMBER
    assert "worker-joined" in log_kinds(actions)


def test_a_reconnected_worker_is_sent_the_newest_round_unless_it_is_in_it() -> None:
    driver = running(2)

    behind = driver.connect("worker-0", entered=0)
    up_to_date = driver.connect("worker-1", entered=driver.newest.id)

    assert sent_messages(behind, "worker-0", "round")
    assert not sent_messages(up_to_date, "worker-1", "round")


def test_lasting_imbalance_is_rebalanced_but_not_too_often() -> None:
    driver = running(2, ranks=4)
    first = driver.newest.id
    for beat in range(29 * 4):
        driver.now += 0.25
        driver.beat("worker-0", step=beat, compute_s=0.01)
        driver.beat("worker-1", step=beat, compute_s=0.03)
    assert driver.newest.id == first, "at most every 30 s"

    for beat in range(29 * 4, 31 * 4):
        driver.now += 0.25
        driver.beat("worker-0", step=beat, compute_s=0.01)
        driver.beat("worker-1", step=beat, compute_s=0.03)

    assert driver.newest.id == first + 1
    assert [member.logical_ranks for member in driver.newest.members] == [3, 1]
    assert not driver.newest.is_forced
