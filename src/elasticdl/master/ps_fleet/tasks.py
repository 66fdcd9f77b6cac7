"""Handles the tasks of the fleet (assigned, done, given up) and announces the fleet to workers and ps. Pure."""

from __future__ import annotations

from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.ending import end_job
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.master.ps_fleet.fleet import BACKUP, MOVE, PROMOTE, RESTORE
from elasticdl.master.ps_fleet.ps_events import BackupBroken, SlotsAssigned, TaskAssigned, TaskReported, TaskResolved
from elasticdl.ps.slots import SlotMap
from elasticdl.retry import backoff_delay
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import Phase

Actions = list[Action]

MIN_RETRY_S = 1.0  # delay after a failed task; it doubles with each further failure
MAX_RETRY_S = 60.0
MAX_FAILED_RESTORES = 3  # in a row, then the job fails


def fleet_message(job: MasterState) -> pb.Fleet:
    return job.ledger.fleet.to_wire().to_proto()


def task_message(job: MasterState, task: TaskAssigned) -> pb.FleetTask:
    fleet = job.ledger.fleet.to_wire_after(task).to_proto()
    match task.kind:
        case "move":
            return pb.FleetTask(fleet=fleet, target=task.peer, slots=task.slots)
        case "backup":
            return pb.FleetTask(fleet=fleet, target=task.peer, backup=True)
        case "promote":
            return pb.FleetTask(fleet=fleet, promote=task.peer)
    return pb.FleetTask(fleet=fleet, slots=task.slots, restore=task.snapshot)


def announce_fleet(job: MasterState) -> Actions:
    """Send the fleet as it is now to all workers and ps.

    The version is increased, so that receivers accept it as newer. While a task is under way it must not change: the
    next version is that of the task.
    """
    fleet = job.ledger.fleet
    if not fleet.version or job.is_over:
        return []
    if fleet.task is None:
        fleet.version += 1
    return _send_fleet(job)


def _send_fleet(job: MasterState) -> Actions:
    message = fleet_message(job)
    ps = [send_message(ps.id, fleet=message) for ps in job.ledger.fleet.present_ps() if ps.reported_pid]
    return [*ps, *(send_message(worker.id, fleet=message) for worker in job.ledger.membership.present_workers())]


def on_slots_assigned(job: MasterState, event: SlotsAssigned, now: float) -> Actions:
    fleet = job.ledger.fleet
    fleet.version, fleet.slot_owners = SlotMap.initial(event.members)
    fleet.unrestored = list(event.unrestored)
    return _send_fleet(job)


def on_task_assigned(job: MasterState, event: TaskAssigned, now: float) -> Actions:
    job.ledger.fleet.task = event
    return [send_message(event.performer, task=task_message(job, event))]


def on_task_reported(job: MasterState, event: TaskReported, now: float) -> Actions:
    task = job.ledger.fleet.task
    if task is None or event.version != task.version or event.ps != task.performer:
        return []  # a late report about a task that was resolved meanwhile
    if event.failure:
        return _fail_task(job, task, event.failure, now)
    return _finish_task(job, task, event.rows, event.pause_s, event.rolled_back, now)


def on_task_resolved(job: MasterState, event: TaskResolved, now: float) -> Actions:
    task = job.ledger.fleet.task
    if task is None or event.version != task.version:
        return []
    if event.is_done:
        return _finish_task(job, task, 0, 0.0, 0, now)
    job.ledger.fleet.give_up_task()
    return _send_fleet(job)


def on_backup_broken(job: MasterState, event: BackupBroken, now: float) -> Actions:
    job.ledger.fleet.backups.pop(event.ps, None)
    return [job.add_log_entry(now, "backup-broken", replica=event.ps, reason=event.reason), *announce_fleet(job)]


def _finish_task(
    job: MasterState, task: TaskAssigned, rows: int, pause_s: float, rolled_back: int, now: float
) -> Actions:
    job.ledger.fleet.finish_task(task)
    if task.kind == BACKUP and (observation := job.observed.ps.get(task.performer)) is not None:
        observation.clear_backup_failure()
    if task.kind == RESTORE:
        job.ledger.failure_budget.reset_delay()
    descriptions = {
        MOVE: f"{len(task.slots)} slots to {task.peer}, {rows:,} rows sent",
        BACKUP: f"all slots to {task.peer}, {rows:,} rows sent",
        PROMOTE: f"{len(task.slots)} slots of {task.peer} from its backup, {rows:,} rows",
        RESTORE: f"{len(task.slots)} slots{_former_owner_text(task)} {_snapshot_text(task)}, {rows:,} rows; "
        f"{_rollback_text(rolled_back)}",
    }
    kinds = {MOVE: "slots-moved", BACKUP: "backed-up", PROMOTE: "promoted", RESTORE: "restored"}
    log_entry = job.add_log_entry(
        now, kinds[task.kind], replica=task.performer, reason=descriptions[task.kind], cost_s=round(pause_s, 6)
    )
    return [log_entry, *_send_fleet(job)]


def _former_owner_text(task: TaskAssigned) -> str:
    return "" if task.peer == task.performer else f" of {task.peer}"


def _snapshot_text(task: TaskAssigned) -> str:
    return f"from {task.snapshot}" if task.snapshot else "without a checkpoint"


def _rollback_text(count: int) -> str:
    if count < 0:
        return "it is not known how many updates are rolled back"
    return f"{count:,} acknowledged updates are rolled back" if count else "no update is rolled back"


def _fail_task(job: MasterState, task: TaskAssigned, failure: str, now: float) -> Actions:
    fleet = job.ledger.fleet
    fleet.give_up_task()
    is_orphaned = task.kind in (MOVE, BACKUP) and not fleet.ps[task.peer].is_serving
    if not is_orphaned:  # otherwise its peer is lost, whose slots wait for the next task
        delay_s = backoff_delay(fleet.failed_tasks, MIN_RETRY_S, MAX_RETRY_S)
        fleet.failed_tasks, fleet.retry_at = fleet.failed_tasks + 1, now + delay_s
    actions: Actions = [
        job.add_log_entry(now, f"{task.kind}-failed", replica=task.performer, reason=failure),
        *_send_fleet(job),
    ]
    if task.kind == RESTORE and fleet.failed_tasks >= MAX_FAILED_RESTORES:
        reason = f"{task.performer} could not restore {len(task.slots)} slots from {task.snapshot}: {failure}"
        actions += end_job(job, Phase.FAILED, reason, 1, now)
    return actions
