from __future__ import annotations

import signal

import pytest

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import Action, LaunchReplica, SignalReplica, WriteLogEntry
from elasticdl.master.ps_fleet import ps_events
from elasticdl.master.ps_fleet.fleet import PsReplicaState
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.slots import SLOTS
from elasticdl.spec import PsId
from tests.unit.master.driver import Driver, job_spec, launched_workers, log_kinds, sent_messages, sent_signals
from tests.unit.master.ps_world import NOTHING, World


def start_fleet(
    ps: int = 2, *, backups: int = 0, serving: bool = True, budget: int = 3, initial_snapshot: str = ""
) -> World:
    """A job with ps, whose workers have not connected yet."""
    driver = Driver(job_spec(workers=1, ps=ps, backups=backups, budget=budget), initial_snapshot=initial_snapshot)
    world = World(driver)
    if serving:
        world.serve(ps)
    return world


def checkpoint(fleet: World, path: str) -> None:
    driver = fleet.driver
    driver.do(ev.CheckpointWritten(driver.newest.workers[0], driver.sequence("worker-0"), 10, path, 0.1, 0.0))


def listen(fleet: World, seconds: float, *senders: str) -> list[Action]:
    """Let time pass while only these replicas send heartbeats."""
    actions: list[Action] = []
    for _ in range(int(seconds / 0.75)):
        fleet.driver.now += 0.75
        for ps in senders:
            actions += fleet.beat(ps)
    return actions


def shares(fleet: World) -> dict[str, int]:
    return {ps.id: len(fleet.fleet.slots_of(ps.id)) for ps in fleet.fleet.present_ps()}


def test_a_job_without_ps_launches_none_and_sends_no_fleet() -> None:
    driver = Driver(job_spec(workers=1))

    actions = driver.join("worker-0")

    assert driver.machine.state.ledger.fleet.is_ready
    assert not sent_messages(actions, "worker-0", "fleet")
    assert driver.newest.workers == ("worker-0",)


def test_slots_are_assigned_once_all_desired_ps_serve() -> None:
    fleet = start_fleet(2, serving=False)

    fleet.connect("ps-0")
    assert fleet.fleet.version == 0
    fleet.connect("ps-1")

    assert shares(fleet) == {"ps-0": SLOTS // 2, "ps-1": SLOTS // 2}
    assert fleet.processes[PsId("ps-0")].version == fleet.processes[PsId("ps-1")].version == 1


def test_slots_are_assigned_without_missing_ps_and_move_to_them_later() -> None:
    fleet = start_fleet(2, serving=False)
    fleet.connect("ps-0")

    fleet.apply(fleet.driver.wait(11.0))
    assert shares(fleet) == {"ps-0": SLOTS, "ps-1": 0}
    fleet.connect("ps-1")
    fleet.work("ps-0")

    assert shares(fleet) == {"ps-0": SLOTS // 2, "ps-1": SLOTS // 2}


def test_workers_are_sent_the_fleet_before_their_first_round() -> None:
    fleet = start_fleet(1, serving=False)
    actions = fleet.driver.join("worker-0")
    assert not sent_messages(actions, "worker-0", "round")

    actions = fleet.connect("ps-0")

    (message,) = sent_messages(actions, "worker-0", "fleet")
    assert FleetView.from_proto(message.fleet).addresses == {"ps-0": "ps-0:1"}
    (planned,) = sent_messages(actions, "worker-0", "round")
    assert actions.index(
        next(action for action in actions if getattr(action, "message", None) == message)
    ) < actions.index(next(action for action in actions if getattr(action, "message", None) == planned))


def test_a_worker_that_connects_is_sent_the_fleet() -> None:
    fleet = start_fleet(2)

    actions = fleet.driver.connect("worker-0")

    (message,) = sent_messages(actions, "worker-0", "fleet")
    assert FleetView.from_proto(message.fleet) == fleet.fleet.to_wire()


def test_a_resumed_job_restores_all_rows_before_training() -> None:
    fleet = start_fleet(2, initial_snapshot="/checkpoints/checkpoint-000000010")
    actions = fleet.driver.join("worker-0")
    assert not sent_messages(actions, "worker-0", "round")
    (task,) = fleet.processes[PsId("ps-0")].tasks
    assert (task.restore, len(task.slots)) == ("/checkpoints/checkpoint-000000010", SLOTS // 2)

    fleet.work("ps-0", rows=7)
    actions = fleet.work("ps-1", rows=8)

    assert sent_messages(actions, "worker-0", "round")
    assert fleet.reasons[-1].endswith("8 rows; no update is rolled back")


def test_more_ps_get_an_equal_share_in_one_task_per_pair() -> None:
    fleet = start_fleet(2)

    fleet.scale(4)
    fleet.connect("ps-2")
    assert fleet.fleet.task is None, "another is expected: slots would move twice"
    fleet.connect("ps-3")
    fleet.settle()

    assert shares(fleet) == {f"ps-{number}": SLOTS // 4 for number in range(4)}
    assert fleet.logged_kinds.count("slots-moved") == 2


def test_if_there_are_too_many_ps_the_youngest_drain_and_are_released() -> None:
    fleet = start_fleet(3)

    fleet.scale(2)
    assert fleet.ps("ps-2").state is PsReplicaState.DRAINING
    assert not fleet.processes[PsId("ps-2")].is_released
    fleet.work("ps-2")
    fleet.work("ps-2")
    assert fleet.processes[PsId("ps-2")].is_released
    fleet.exit_released("ps-2")

    assert fleet.ps("ps-2").state is PsReplicaState.LEFT
    assert shares(fleet) == {"ps-0": SLOTS // 2, "ps-1": SLOTS // 2}
    assert fleet.logged_kinds[-3:] == ["slots-moved", "slots-moved", "ps-drained"]


def test_a_ps_that_was_scaled_away_before_it_connected_is_released() -> None:
    fleet = start_fleet(2, serving=False)
    fleet.connect("ps-0")

    fleet.scale(1)
    fleet.connect("ps-1")

    assert fleet.processes[PsId("ps-1")].is_released
    assert shares(fleet)["ps-0"] == SLOTS


def test_a_preempted_ps_is_replaced_and_drains_meanwhile() -> None:
    fleet = start_fleet(2)

    actions = fleet.leave("ps-1")

    assert LaunchReplica("ps", PsId("ps-2")) in actions
    (task,) = fleet.processes[PsId("ps-1")].tasks
    assert (task.target, len(task.slots)) == ("ps-0", SLOTS // 2)


def test_a_preempted_ps_that_ends_before_its_slots_moved_is_lost_but_no_failure() -> None:
    fleet = start_fleet(1)
    fleet.leave("ps-0")

    del fleet.processes[PsId("ps-0")]
    actions = fleet.apply(fleet.driver.exit("ps-0", 0, None))

    assert fleet.ps("ps-0").state is PsReplicaState.LOST
    assert "ended before all its slots had moved" in fleet.ps("ps-0").reason
    assert fleet.driver.machine.state.ledger.failure_budget.spent == 0
    assert "ps-lost" in log_kinds(actions)


def test_a_lost_ps_without_a_backup_is_restored_from_the_newest_snapshot() -> None:
    fleet = start_fleet(2)
    fleet.driver.join("worker-0")
    checkpoint(fleet, "/checkpoints/checkpoint-000000010")

    actions = fleet.kill("ps-1")
    assert LaunchReplica("ps", PsId("ps-2")) in actions
    fleet.connect("ps-2")
    (task,) = fleet.processes[PsId("ps-2")].tasks
    assert task.restore == "/checkpoints/checkpoint-000000010"
    assert set(task.slots) == set(range(1, SLOTS, 2))
    fleet.work("ps-2", rows=40, rolled_back=17)

    assert shares(fleet) == {"ps-0": SLOTS // 2, "ps-2": SLOTS // 2}
    assert fleet.logged_kinds[-1] == "restored"
    expected = "512 slots of ps-1 from /checkpoints/checkpoint-000000010, 40 rows; "
    assert fleet.reasons[-1] == expected + "17 acknowledged updates are rolled back"


def test_without_a_snapshot_the_slots_of_a_lost_ps_begin_empty() -> None:
    fleet = start_fleet(2)

    fleet.kill("ps-0")
    fleet.connect("ps-2")
    (task,) = fleet.processes[PsId("ps-2")].tasks
    fleet.work("ps-2", rolled_back=-1)

    assert task.restore == ""
    assert fleet.reasons[-1].endswith("without a checkpoint, 0 rows; it is not known how many updates are rolled back")


def test_a_restore_does_not_wait_for_a_replacement_that_is_not_desired_any_more() -> None:
    fleet = start_fleet(2)
    fleet.scale(1)

    fleet.kill("ps-1")
    fleet.driver.now += 1.0
    fleet.beat("ps-0")

    (task,) = fleet.processes[PsId("ps-0")].tasks
    assert len(task.slots) == SLOTS // 2 and not task.target


def test_a_restore_that_keeps_failing_ends_the_job() -> None:
    fleet = start_fleet(1)
    fleet.kill("ps-0")
    fleet.connect("ps-1")

    for _ in range(3):
        fleet.perform("ps-1", failure="the file is torn")
        fleet.report_task("ps-1")
        fleet.beat("ps-1")
        fleet.apply(fleet.driver.wait(2.5))
        fleet.beat("ps-1")

    assert fleet.driver.phase == "failed"
    assert "could not restore 1024 slots" in fleet.driver.reason and "the file is torn" in fleet.driver.reason


def test_a_failed_move_leaves_the_owners_unchanged_and_is_tried_again_after_a_delay() -> None:
    fleet = start_fleet(1)
    fleet.scale(2)
    fleet.connect("ps-1")

    fleet.perform("ps-0", failure="ps-1: memory limit of 1 MiB")
    actions = fleet.report_task("ps-0")

    assert "move-failed" in log_kinds(actions)
    assert fleet.fleet.task is None and shares(fleet) == {"ps-0": SLOTS, "ps-1": 0}
    assert fleet.processes[PsId("ps-0")].version == fleet.fleet.version, "the map it has in force is the owners' before"
    fleet.apply(fleet.driver.wait(1.0))
    fleet.work("ps-0")
    assert shares(fleet) == {"ps-0": SLOTS // 2, "ps-1": SLOTS // 2}


def test_the_backup_of_a_lost_ps_is_promoted() -> None:
    fleet = start_fleet(3, backups=1)
    for name in ("ps-0", "ps-1", "ps-2"):
        fleet.work(name)
    assert fleet.fleet.backups == {"ps-0": "ps-1", "ps-1": "ps-2", "ps-2": "ps-0"}

    fleet.kill("ps-1")
    assert (
        fleet.fleet_view is not None
        and fleet.fleet_view.lost == {"ps-1"}
        and fleet.fleet_view.backups[PsId("ps-1")] == "ps-2"
    )
    (task,) = fleet.processes[PsId("ps-2")].tasks
    assert task.promote == "ps-1"
    fleet.work("ps-2")

    assert shares(fleet)["ps-2"] > SLOTS // 2
    assert "restored" not in fleet.logged_kinds
    fleet.settle()
    assert fleet.fleet.backups == {"ps-0": "ps-2", "ps-2": "ps-3", "ps-3": "ps-0"}


def test_a_broken_backup_is_made_again() -> None:
    fleet = start_fleet(2, backups=1)
    fleet.settle()

    fleet.beat("ps-0", backup_failure="ps-1: no answer")

    assert "backup-broken" in fleet.logged_kinds
    (task,) = fleet.processes[PsId("ps-0")].tasks
    assert (task.backup, task.target) == (True, "ps-1")
    fleet.work("ps-0")
    assert fleet.logged_kinds.count("backup-broken") == 1, "the earlier failure is not that of the new backup"
    assert not fleet.processes[PsId("ps-0")].tasks


@pytest.mark.parametrize("is_done", [True, False])
def test_if_the_source_of_a_move_dies_the_slot_map_of_the_target_shows_whether_it_was_done(is_done: bool) -> None:
    fleet = start_fleet(1)
    fleet.scale(2)
    fleet.connect("ps-1")
    if is_done:
        fleet.perform("ps-0")

    fleet.kill("ps-0")
    assert fleet.fleet.task is not None, "what is on its way may still arrive"
    fleet.driver.now += 1.0
    fleet.beat("ps-1")

    assert shares(fleet)["ps-1"] == (SLOTS // 2 if is_done else 0)
    assert len(fleet.processes[PsId("ps-1")].tasks) == (0 if is_done else 1), (
        "it restores what was not moved; the rest is for the replacement"
    )


def test_a_restarted_master_assigns_the_task_again() -> None:
    fleet = start_fleet(1)
    fleet.scale(2)
    fleet.connect("ps-1")
    process = fleet.processes[PsId("ps-0")]
    process.tasks.clear()
    process.newest_version = 0

    fleet.restart_master()

    (task,) = process.tasks
    assert task.target == "ps-1"


def test_a_crash_counts_against_the_budget_and_a_preemption_does_not() -> None:
    fleet = start_fleet(2, budget=1)

    fleet.kill("ps-0")
    assert fleet.driver.machine.state.ledger.failure_budget.spent == 0
    fleet.crash("ps-1")
    assert fleet.driver.machine.state.ledger.failure_budget.spent == 1
    fleet.apply(fleet.driver.wait(5.0))
    fleet.connect("ps-2")
    actions = fleet.crash("ps-2")

    assert fleet.driver.phase == "failed"
    assert "last ps-2 crashed: exited with code 1" in fleet.driver.reason
    assert sent_messages(actions, "ps-3", "release")


def test_a_permanent_failure_of_a_ps_is_the_reason_of_the_job() -> None:
    fleet = start_fleet(1)

    event = ps_events.PsFailed(PsId("ps-0"), fleet.driver.sequence("ps-0"), "the model differs", False, True)
    fleet.apply(fleet.driver.do(event))

    assert (fleet.driver.phase, fleet.driver.reason) == ("failed", "ps-0: the model differs")


def test_a_silent_ps_is_killed_and_lost() -> None:
    fleet = start_fleet(2, backups=1)
    fleet.settle()

    actions = listen(fleet, 4.5, "ps-0")

    assert SignalReplica(PsId("ps-1"), signal.SIGKILL) in actions
    assert fleet.ps("ps-1").state is PsReplicaState.LOST
    assert fleet.ps("ps-1").reason.startswith("silent for 3.")


def test_a_silent_ps_without_a_backup_gets_more_time() -> None:
    fleet = start_fleet(2)

    listen(fleet, 9.0, "ps-0")
    assert fleet.ps("ps-1").state is PsReplicaState.SERVING
    listen(fleet, 6.0, "ps-0")
    assert fleet.ps("ps-1").reason.startswith("silent for 12.")


def test_a_ps_and_its_backup_are_not_both_lost_by_a_short_silence() -> None:
    fleet = start_fleet(3, backups=1)
    fleet.settle()
    pair = {"ps-0", fleet.fleet.backups[PsId("ps-0")]}
    (third,) = {"ps-0", "ps-1", "ps-2"} - pair

    listen(fleet, 9.0, third)
    assert "ps-lost" not in fleet.logged_kinds
    listen(fleet, 1.5, *pair, third)
    assert "ps-lost" not in fleet.logged_kinds, "they were only cut off from the master"


def test_a_ps_that_holds_the_only_backup_of_a_lost_ps_gets_more_time() -> None:
    fleet = start_fleet(3, backups=1)
    fleet.settle()
    holder = fleet.fleet.backups[PsId("ps-0")]
    (third,) = {"ps-0", "ps-1", "ps-2"} - {"ps-0", holder}

    fleet.kill("ps-0")
    listen(fleet, 9.0, third)

    assert fleet.ps(holder).state is PsReplicaState.SERVING


def test_no_ps_is_silent_while_the_whole_machine_sleeps() -> None:
    fleet = start_fleet(2)

    fleet.apply(fleet.driver.wait(100.0))
    fleet.beat("ps-0")

    assert fleet.ps("ps-1").state is PsReplicaState.SERVING


def test_the_end_of_the_job_releases_all_ps() -> None:
    fleet = start_fleet(2)
    fleet.driver.join("worker-0")
    fleet.driver.enter()
    fleet.driver.finish("worker-0")

    actions = fleet.apply(fleet.driver.export("worker-0"))

    assert fleet.driver.phase == "succeeded"
    assert sent_messages(actions, "ps-0", "release") and sent_messages(actions, "ps-1", "release")
    fleet.exit_released("ps-0")
    assert fleet.ps("ps-0").state is PsReplicaState.LEFT
    assert "ps-lost" not in fleet.logged_kinds


def test_a_job_that_is_killed_kills_its_ps() -> None:
    fleet = start_fleet(1)

    actions = fleet.driver.do(ev.StopRequested(at_once=True, reason="enough"))

    assert SignalReplica(PsId("ps-0"), signal.SIGKILL) in actions
    assert ("worker-0", signal.SIGKILL) in sent_signals(actions)


def test_a_ps_that_connects_after_the_end_is_released() -> None:
    fleet = start_fleet(1, serving=False)
    fleet.driver.do(ev.StopRequested(at_once=False, reason="enough"))

    fleet.connect("ps-0")

    assert fleet.processes[PsId("ps-0")].is_released


def test_a_repeated_message_of_a_ps_is_handled_once() -> None:
    fleet = start_fleet(1)
    fleet.scale(2)
    fleet.connect("ps-1")
    fleet.perform("ps-0")
    (version, _), sequence = fleet.processes[PsId("ps-0")].unreported_tasks[0], fleet.driver.sequence("ps-0")
    event = ps_events.TaskReported(PsId("ps-0"), sequence, version, 5, 0.001, 0, "")

    first = fleet.driver.do(event)
    again = fleet.driver.do(event)

    assert log_kinds(first) == ["slots-moved"]
    assert not log_kinds(again)
    assert sent_messages(again, "ps-0", "acknowledged")[0].acknowledged.sequence == sequence
    (entry,) = [action.entry for action in first if isinstance(action, WriteLogEntry)]
    assert (entry.replica, entry.reason, entry.cost_s) == ("ps-0", "512 slots to ps-1, 5 rows sent", 0.001)


def test_scaling_workers_does_not_change_ps_and_vice_versa() -> None:
    fleet = start_fleet(2)

    actions = fleet.scale(3)
    assert launched_workers(actions) == [] and fleet.driver.machine.state.ledger.desired_workers == 1
    actions = fleet.driver.do(ev.ScaleRequested(2))

    assert launched_workers(actions) == ["worker-1"] and fleet.fleet.desired == 3


def busy(fleet: World, ps: str, busy_s: float) -> list[Action]:
    return fleet.apply(fleet.driver.do(ps_events.PsHeartbeatReceived(PsId(ps), 1, *NOTHING, busy_s=busy_s)))


def test_a_ps_that_sends_heartbeats_but_answers_no_requests_is_noticed_then_replaced() -> None:
    fleet = start_fleet(2)
    assert not log_kinds(busy(fleet, "ps-1", 11.0))
    actions = busy(fleet, "ps-1", 12.0)
    assert log_kinds(actions) == ["ps-stalled"]
    assert sent_messages(actions, "ps-1", "dump_stacks")
    assert not [a for a in busy(fleet, "ps-1", 23.0) if isinstance(a, SignalReplica)]

    actions = busy(fleet, "ps-1", 24.5)  # a worker that waits for it fails after 30
    assert SignalReplica(PsId("ps-1"), signal.SIGKILL) in actions
    assert "answers no requests: has worked on one request for 24 s" in fleet.ps("ps-1").reason
    assert fleet.ps("ps-1").state is PsReplicaState.LOST
    assert fleet.ps("ps-0").state is PsReplicaState.SERVING
    assert fleet.driver.machine.state.ledger.failure_budget.spent == 1
    assert fleet.driver.replayed().dump_ledger() == fleet.driver.machine.dump_ledger()


def test_requests_may_take_long_while_slots_move() -> None:
    fleet = start_fleet(2)
    fleet.apply(fleet.driver.do(ev.ScaleRequested(0, 3)))
    fleet.connect("ps-2")
    assert fleet.fleet.task is not None
    assert not log_kinds(busy(fleet, "ps-1", 100.0))
