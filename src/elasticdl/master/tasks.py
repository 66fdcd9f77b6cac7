"""Tasks of the fleet, event by event: slots dealt, a task given, done or given up; and who hears of it. Pure."""

from __future__ import annotations

from elasticdl.master.actions import Action
from elasticdl.master.ending import end
from elasticdl.master.fleet import MIRROR, MOVE, PROMOTE, RESTORE
from elasticdl.master.job import Job, send
from elasticdl.master.ps_events import MirrorBroken, SlotsDealt, SlotsMoved, TaskGiven, TaskSettled
from elasticdl.ps.slots import SlotMap
from elasticdl.rpc import elasticdl_pb2 as pb

Actions = list[Action]

RETRY_S = 1.0  # after a task that could not be done; doubles each time
LONGEST_RETRY_S = 60.0
MOST_RESTORES = 3  # that fail in a row, before the job does


def fleet_message(job: Job) -> pb.Fleet:
    return job.ledger.fleet.told().message()


def task_message(job: Job, task: TaskGiven) -> pb.FleetTask:
    fleet = job.ledger.fleet.after(task).message()
    match task.kind:
        case "move":
            return pb.FleetTask(fleet=fleet, target=task.other, slots=task.slots)
        case "mirror":
            return pb.FleetTask(fleet=fleet, target=task.other, mirror=True)
        case "promote":
            return pb.FleetTask(fleet=fleet, promote=task.other)
    return pb.FleetTask(fleet=fleet, slots=task.slots, restore=task.directory)


def announce(job: Job) -> Actions:
    """All hear the fleet as it is now.

    While a task is under way the version must stay: the task's own is the next one. Else it grows, so that the news
    are newer than what anybody knows.
    """
    fleet = job.ledger.fleet
    if not fleet.version or job.is_over:
        return []
    if fleet.task is None:
        fleet.version += 1
    return _tell(job)


def _tell(job: Job) -> Actions:
    message = fleet_message(job)
    ps = [send(ps.id, fleet=message) for ps in job.ledger.fleet.here() if ps.greeted_pid]
    return [*ps, *(send(worker.id, fleet=message) for worker in job.ledger.membership.here())]


def dealt(job: Job, event: SlotsDealt, now: float) -> Actions:
    fleet = job.ledger.fleet
    fleet.version, fleet.owner = SlotMap.first(event.members)
    fleet.blank = list(event.blank)
    return _tell(job)


def given(job: Job, event: TaskGiven, now: float) -> Actions:
    job.ledger.fleet.task = event
    return [send(event.performer, task=task_message(job, event))]


def moved(job: Job, event: SlotsMoved, now: float) -> Actions:
    task = job.ledger.fleet.task
    if task is None or event.version != task.version or event.ps != task.performer:
        return []  # an echo of one that was settled without its word
    if event.failure:
        return _failed(job, task, event.failure, now)
    return _done(job, task, event.rows, event.pause_s, event.rolled_back, now)


def settled(job: Job, event: TaskSettled, now: float) -> Actions:
    task = job.ledger.fleet.task
    if task is None or event.version != task.version:
        return []
    if event.is_done:
        return _done(job, task, 0, 0.0, 0, now)
    job.ledger.fleet.give_up()
    return _tell(job)


def mirror_broken(job: Job, event: MirrorBroken, now: float) -> Actions:
    job.ledger.fleet.replicas.pop(event.ps, None)
    return [job.note(now, "mirror-broken", worker=event.ps, reason=event.reason), *announce(job)]


def _done(job: Job, task: TaskGiven, rows: int, pause_s: float, rolled_back: int, now: float) -> Actions:
    job.ledger.fleet.finish(task)
    if task.kind == MIRROR and (seen := job.seen.ps.get(task.performer)) is not None:
        seen.forget_mirror_failure()
    if task.kind == RESTORE:
        job.ledger.budget.worked()
    about = {
        MOVE: f"{len(task.slots)} slots to {task.other}, {rows:,} rows sent",
        MIRROR: f"{task.other} has copies of all slots, {rows:,} rows sent",
        PROMOTE: f"{len(task.slots)} slots of {task.other} from its copies, {rows:,} rows",
        RESTORE: f"{len(task.slots)} slots{_of(task)} from {task.directory or 'nothing'}, {rows:,} rows; "
        f"{_rolled_back(rolled_back)}",
    }
    kinds = {MOVE: "slots-moved", MIRROR: "mirrored", PROMOTE: "promoted", RESTORE: "restored"}
    note = job.note(now, kinds[task.kind], worker=task.performer, reason=about[task.kind], cost_s=round(pause_s, 6))
    return [note, *_tell(job)]


def _of(task: TaskGiven) -> str:
    return "" if task.other == task.performer else f" of {task.other}"


def _rolled_back(count: int) -> str:
    if count < 0:
        return "nobody knows how many updates are rolled back"
    return f"{count:,} acknowledged updates are rolled back" if count else "no update is rolled back"


def _failed(job: Job, task: TaskGiven, why: str, now: float) -> Actions:
    fleet = job.ledger.fleet
    fleet.give_up()
    is_orphaned = task.kind in (MOVE, MIRROR) and not fleet.ps[task.other].answers
    if not is_orphaned:  # else the loss is why, and the lost one's slots wait for the next task
        pause_s = min(RETRY_S * 2.0**fleet.failed, LONGEST_RETRY_S)
        fleet.failed, fleet.retry_at = fleet.failed + 1, now + pause_s
    actions: Actions = [job.note(now, f"{task.kind}-failed", worker=task.performer, reason=why), *_tell(job)]
    if task.kind == RESTORE and fleet.failed >= MOST_RESTORES:
        reason = f"{task.performer} could not restore {len(task.slots)} slots from {task.directory}: {why}"
        actions += end(job, "failed", reason, 1, now)
    return actions
