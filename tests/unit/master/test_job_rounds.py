"""Rounds as design 0002 tells them: planned, forced, who notices, and what each member hears."""

from __future__ import annotations

import signal

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import LaunchReplica
from elasticdl.master.machine.membership import WorkerState
from elasticdl.master.machine.state import SUSPECT_NODE_S
from elasticdl.master.strategies.rounds import FAILING_FOR_S
from elasticdl.spec import WorkerId
from tests.unit.master.driver import Driver, job_spec, noted, running, sent


def quiet(driver: Driver, seconds: float, *alive: str, step: int = 1) -> None:
    """Time passes in heartbeats of those alive, no step ends."""
    for _ in range(round(seconds / 0.25)):
        driver.now += 0.25
        for worker in alive:
            driver.beat(worker, step=step)


def test_the_first_round_is_forced_and_names_everyones_addresses_and_logical_ranks() -> None:
    driver = Driver(job_spec(workers=2, ranks=5))

    actions = driver.join("worker-0", "worker-1")
    (message,) = sent(actions, "worker-1", "round")

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


def test_a_newcomer_hears_of_its_donor_and_the_members_train_on() -> None:
    driver = running(2)
    driver.do(ev.ScaleRequested(3))

    actions = driver.join("worker-2")
    newcomer = sent(actions, "worker-0", "round")[0].round.members[2]

    assert not driver.newest.is_forced
    assert (newcomer.worker, newcomer.donor, newcomer.donor_address) == ("worker-2", "worker-0", "worker-0:handover")
    assert driver.life("worker-0") is WorkerState.MEMBER


def test_a_leaving_worker_hears_of_the_round_without_it() -> None:
    driver = running(2)

    actions = driver.leave("worker-1")

    assert [m.worker for m in sent(actions, "worker-1", "round")[0].round.members] == ["worker-0"]
    assert not driver.newest.is_forced


def test_goodbye_of_one_that_left_says_that_the_round_was_entered() -> None:
    driver = running(2, most=2)
    driver.leave("worker-1")
    planned = driver.newest.id
    driver.goodbye("worker-1")

    driver.exit("worker-1", code=0)

    assert driver.newest.id == planned, "no forced round for one that left in peace"
    assert driver.machine.state.ledger.rounds.is_entered


def test_a_killed_member_forces_a_round_at_once() -> None:
    driver = running(3)

    actions = driver.exit("worker-1", signal=signal.SIGKILL)

    assert sent(actions, "worker-0", "round")[0].round.forced
    assert driver.newest.workers == ("worker-0", "worker-2")


def test_a_newcomer_that_dies_while_joining_stops_nobody() -> None:
    driver = running(2)
    driver.do(ev.ScaleRequested(3))
    driver.join("worker-2")

    driver.exit("worker-2", signal=signal.SIGKILL)

    assert not driver.newest.is_forced
    assert driver.newest.workers == ("worker-0", "worker-1")


def test_a_broken_round_of_living_members_is_forced_anew_after_regroup_s() -> None:
    driver = running(2)
    before = driver.newest.id
    for worker in ("worker-0", "worker-1"):
        driver.do(ev.RoundFailed(WorkerId(worker), driver.sequence(worker), before, "connection closed"))
    assert driver.newest.id == before

    driver.wait(driver.spec.timing.regroup_s + 0.01)

    assert driver.newest.id == before + 1
    assert driver.newest.is_forced and driver.newest.workers == ("worker-0", "worker-1")


def test_an_echo_of_the_round_before_does_not_break_the_forced_one() -> None:
    driver = running(3)
    before = driver.newest.id
    driver.exit("worker-2", signal=signal.SIGKILL)
    forced = driver.newest.id

    driver.do(ev.RoundFailed(WorkerId("worker-0"), driver.sequence("worker-0"), before, ""))
    driver.wait(1.0)

    assert driver.newest.id == forced


def test_a_planned_round_that_breaks_as_it_is_entered_includes_its_newcomers() -> None:
    driver = running(1, most=2)
    driver.do(ev.ScaleRequested(2))
    driver.join("worker-1")
    planned = driver.newest.id

    driver.do(ev.RoundFailed(WorkerId("worker-0"), driver.sequence("worker-0"), planned, ""))
    driver.wait(driver.spec.timing.regroup_s + 0.01)

    assert driver.newest.is_forced
    assert set(driver.newest.workers) == {"worker-0", "worker-1"}


def test_a_newcomer_left_out_of_the_forced_round_is_expelled_when_its_own_breaks() -> None:
    driver = running(2)
    driver.do(ev.ScaleRequested(3))
    driver.join("worker-2")
    planned = driver.newest.id
    driver.exit("worker-1", signal=signal.SIGKILL)

    actions = driver.do(ev.RoundFailed(WorkerId("worker-2"), driver.sequence("worker-2"), planned, ""))

    assert sent(actions, "worker-2", "reset")
    assert driver.life("worker-2") is WorkerState.STARTING


def test_a_newcomer_whose_hand_over_failed_begins_again_and_stops_nobody() -> None:
    driver = running(2)
    driver.do(ev.ScaleRequested(3))
    driver.join("worker-2")

    actions = driver.do(ev.RoundFailed(WorkerId("worker-2"), driver.sequence("worker-2"), driver.newest.id, "reset"))
    driver.wait(1.0)

    assert sent(actions, "worker-2", "reset")
    assert not driver.newest.is_forced and driver.newest.workers == ("worker-0", "worker-1")
    driver.ready("worker-2")
    assert not driver.newest.is_forced and "worker-2" in driver.newest.workers


def test_all_members_dead_start_again_with_those_that_come_back() -> None:
    driver = running(2)
    driver.exit("worker-0", signal=signal.SIGKILL)
    driver.exit("worker-1", signal=signal.SIGKILL)

    driver.join("worker-2", "worker-3")

    assert driver.newest.is_forced
    assert driver.newest.workers == ("worker-2", "worker-3")


def test_survivors_below_the_minimum_wait_and_go_on_with_a_newcomer() -> None:
    driver = running(2, least=2)
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

    assert driver.life("worker-1") is WorkerState.LOST
    assert driver.newest.workers == ("worker-0",)


def test_others_are_launched_away_from_a_silent_worker_as_long_as_its_node_may_be_lost_unseen() -> None:
    driver = running(2)
    quiet(driver, 3.0, "worker-0", "worker-1")
    quiet(driver, 1.0, "worker-0")

    def launch(number: int) -> LaunchReplica:
        actions = driver.do(ev.ReplicaLaunched("worker", WorkerId(f"worker-{number}")))
        (found,) = [one for one in actions if isinstance(one, LaunchReplica) and one.replica == f"worker-{number}"]
        return found

    assert launch(10).avoid_nodes_of == ("worker-1",)
    driver.now += SUSPECT_NODE_S
    assert launch(11).avoid_nodes_of == ()


def test_a_member_without_heartbeats_is_alive_as_long_as_steps_end() -> None:
    driver = running(2)
    quiet(driver, 3.0, "worker-0", "worker-1")

    for step in range(2, 30):
        driver.now += 0.25
        driver.beat("worker-0", step=step)

    assert driver.life("worker-1") is WorkerState.MEMBER


def test_the_only_holder_of_the_state_is_never_given_up_for_its_silence() -> None:
    driver = running(1)
    quiet(driver, 3.0, "worker-0")

    quiet(driver, 30.0)

    assert driver.life("worker-0") is WorkerState.MEMBER


def test_nobody_is_given_up_when_all_are_silent() -> None:
    driver = running(3)
    quiet(driver, 3.0, "worker-0", "worker-1", "worker-2")

    quiet(driver, 600.0)  # the machine slept
    quiet(driver, 1.0, "worker-0", "worker-1", "worker-2")

    assert {driver.life(f"worker-{i}") for i in range(3)} == {WorkerState.MEMBER}


def test_a_step_told_late_does_not_hide_a_silent_member() -> None:
    driver = running(2)
    quiet(driver, 3.0, "worker-0", "worker-1")
    driver.now += 0.2
    driver.beat("worker-0", step=2)  # ended before worker-1 fell silent

    quiet(driver, 1.0, "worker-0", step=2)

    assert driver.life("worker-1") is WorkerState.LOST


def test_a_silent_worker_that_is_heard_again_is_expelled_and_comes_back_as_a_newcomer() -> None:
    driver = running(2, most=2)
    quiet(driver, 3.0, "worker-0", "worker-1")
    quiet(driver, 1.0, "worker-0")
    driver.enter(step=2)

    driver.now += 0.1
    actions = driver.beat("worker-1")
    assert sent(actions, "worker-1", "reset")
    assert driver.life("worker-1") is WorkerState.STARTING

    driver.ready("worker-1")
    assert driver.life("worker-1") is WorkerState.JOINING


def test_a_round_that_breaks_whenever_it_is_formed_is_said_once_and_ends_the_job_at_last() -> None:
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


def test_a_step_that_ends_makes_up_for_all_rounds_that_broke() -> None:
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


def test_an_entered_planned_round_is_known_from_a_heartbeat_too() -> None:
    driver = running(1, most=2)
    driver.do(ev.ScaleRequested(2))
    driver.join("worker-1")

    actions = driver.beat("worker-0", step=3, in_round=driver.newest.id)

    assert driver.life("worker-1") is WorkerState.MEMBER
    assert "worker-joined" in noted(actions)


def test_a_reconnected_worker_is_told_the_newest_round_unless_it_is_in_it() -> None:
    driver = running(2)

    behind = driver.greet("worker-0", entered=0)
    up_to_date = driver.greet("worker-1", entered=driver.newest.id)

    assert sent(behind, "worker-0", "round")
    assert not sent(up_to_date, "worker-1", "round")


def test_an_uneven_pair_is_rebalanced_once_it_lasted_and_not_too_often() -> None:
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
    assert [seat.logical_ranks for seat in driver.newest.members] == [3, 1]
    assert not driver.newest.is_forced
