"""Tasks of the fleet, event by event: slots dealt, a task given, done or given up; and who hears of it. Pure."""

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

MIN_RETRY_S = 1.0  # after a task that could not be done; doubles each time
MAX_RETRY_S = 60.0
MAX_FAILED_RESTORES = 3  # that fail in a row, before the job does


def fleet_message(job: MasterState) -> pb.Fleet:
    return job.ledger.fleet.to_wire().to_proto()


def task_message(job: MasterState, task: TaskAssigned) -> pb.FleetTask:
    fleet = job.ledger.fleet.to_wire_after(task).to_proto()
    match task.kind:
        case "move":
            return pb.FleetTask(fleet=fleet, target=task.other, slots=task.slots)
        case "backup":
            return pb.FleetTask(fleet=fleet, target=task.other, backup=True)
        case "promote":
            return pb.FleetTask(fleet=fleet, promote=task.other)
    return pb.FleetTask(fleet=fleet, slots=task.slots, restore=task.snapshot)


def announce_fleet(job: MasterState) -> Actions:
    """All hear the fleet as it is now.

    While a task is under way the version must stay: the task's own is the next one. Else it grows, so that the news
    are newer than what anybody knows.
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
        return []  # an echo of one that was settled without its word
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
    if task.kind == BACKUP and (seen := job.observed.ps.get(task.performer)) is not None:
        seen.clear_backup_failure()
    if task.kind == RESTORE:
        job.ledger.failure_budget.reset_delay()
    about = {
        MOVE: f"{len(task.slots)} slots to {task.other}, {rows:,} rows sent",
        BACKUP: f"{task.other} has copies of all slots, {rows:,} rows sent",
        PROMOTE: f"{len(task.slots)} slots of {task.other} from its copies, {rows:,} rows",
        RESTORE: f"{len(task.slots)} slots{_former_owner_text(task)} from {task.snapshot or 'nothing'}, {rows:,} rows; "
        f"{_rollback_text(rolled_back)}",
    }
    kinds = {MOVE: "slots-moved", BACKUP: "backed-up", PROMOTE: "promoted", RESTORE: "restored"}
    note = job.add_log_entry(
        now, kinds[task.kind], replica=task.performer, reason=about[task.kind], cost_s=round(pause_s, 6)
    )
    return [note, *_send_fleet(job)]


def _former_owner_text(task: TaskAssigned) -> str:
    return "" if task.other == task.performer else f" of {task.other}"


def _rollback_text(count: int) -> str:
    if count < 0:
        return "nobody knows how many updates are rolled back"
    return f"{count:,} acknowledged updates are rolled back" if count else "no update is rolled back"


def _fail_task(job: MasterState, task: TaskAssigned, why: str, now: float) -> Actions:
    fleet = job.ledger.fleet
    fleet.give_up_task()
    is_orphaned = task.kind in (MOVE, BACKUP) and not fleet.ps[task.other].is_serving
    if not is_orphaned:  # else the loss is why, and the lost one's slots wait for the next task
        pause_s = backoff_delay(fleet.failed_tasks, MIN_RETRY_S, MAX_RETRY_S)
        fleet.failed_tasks, fleet.retry_at = fleet.failed_tasks + 1, now + pause_s
    actions: Actions = [
        job.add_log_entry(now, f"{task.kind}-failed", replica=task.performer, reason=why),
        *_send_fleet(job),
    ]
    if task.kind == RESTORE and fleet.failed_tasks >= MAX_FAILED_RESTORES:
        reason = f"{task.performer} could not restore {len(task.slots)} slots from {task.snapshot}: {why}"
        actions += end_job(job, Phase.FAILED, reason, 1, now)
    return actions
