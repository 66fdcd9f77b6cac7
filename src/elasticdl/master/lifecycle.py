"""A worker's life, event by event: launched, greeted, ready, leaving, gone. Pure."""

from __future__ import annotations

import signal

from elasticdl.master import memory, messages
from elasticdl.master.actions import Action, LaunchWorker, SignalWorker
from elasticdl.master.ending import charge, fail, is_failing, keeping_failed
from elasticdl.master.events import (
    Exit,
    LeaveOverdue,
    ReplicaExited,
    ReplicasListed,
    ReplicaStarted,
    ReplicaWaits,
    ScaleAsked,
    SessionBroken,
    WorkerFailed,
    WorkerFellSilent,
    WorkerGreeted,
    WorkerLaunched,
    WorkerLeaving,
    WorkerReady,
    WorkerReturned,
    WorkerSaidGoodbye,
)
from elasticdl.master.job import Job, send
from elasticdl.master.membership import GONE, OUT_OF_MEMORY, TAKEN, Cause, Worker, WorkerState, cause_of_exit
from elasticdl.master.memory import judged
from elasticdl.master.training import expel, mark_entered
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import WorkerId

Actions = list[Action]


def launched(job: Job, event: WorkerLaunched, now: float) -> Actions:
    worker = job.ledger.membership.add(event.worker, WorkerState.LAUNCHING, now)
    worker.raises = job.ledger.raises.get("worker", 0)
    return [_launch(job, worker, now), job.note(now, "worker-launched", worker=worker.id)]


def _launch(job: Job, worker: Worker, now: float) -> LaunchWorker:
    return LaunchWorker(worker.id, worker.raises, job.ledger.wish, job.suspects(now))


def listed(job: Job, event: ReplicasListed, now: float) -> Actions:
    """A launcher reports, perhaps after the master was away: catch up with what was missed."""
    actions: Actions = []
    workers = job.ledger.membership.workers
    for exit_ in event.exited:
        actions += _exited(job, exit_, now)
    running = dict(event.running)
    ended = {exit_.replica for exit_ in event.exited}
    for worker in list(workers.values()):
        if worker.id in running:
            worker.pid = running[worker.id]
        elif worker.external or worker.exited or worker.id in ended:
            continue
        elif worker.state is WorkerState.LAUNCHING and not worker.pid:
            # The master died between its decision and the command.
            actions.append(_launch(job, worker, now))
        else:
            actions += _exited(job, Exit(worker.id, worker.pid, None, None), now)
    return actions


def started(job: Job, event: ReplicaStarted, now: float) -> Actions:
    if worker := job.ledger.membership.workers.get(WorkerId(event.replica)):
        worker.pid = event.pid
    return []


def waits(job: Job, event: ReplicaWaits, now: float) -> Actions:
    """Said at once, in the cluster's own words; the pod stays asked for."""
    worker = job.ledger.membership.workers.get(WorkerId(event.replica))
    if worker is None or worker.state is not WorkerState.LAUNCHING or worker.reason == event.why:
        return []
    worker.reason = event.why
    return [job.note(now, "worker-waits", worker=worker.id, reason=event.why)] if event.is_trouble else []


def exited(job: Job, event: ReplicaExited, now: float) -> Actions:
    return _exited(job, event.exit, now)


def _exited(job: Job, event: Exit, now: float) -> Actions:
    worker = job.ledger.membership.workers.get(WorkerId(event.replica))
    if worker is None or worker.exited:
        return []
    worker.exited, worker.connected = True, False
    if worker.state in GONE:
        return []
    was_useful = worker.state in (WorkerState.MEMBER, WorkerState.FINISHED)
    cause = cause_of_exit(worker, event, job.log_of(worker.id))
    cause, notes = judged(job, "worker", worker.raises, event.cause, cause, now)
    cause, is_incident = _count_setback(job, worker, event, cause)
    actions = lose(job, worker, cause.state, cause.reason, now) + notes
    if cause.crashed and not is_incident:
        return actions  # the loss that it belongs to was charged
    return actions + charge(job, worker.id, cause, now, was_useful=was_useful, kind="workers")


def _count_setback(job: Job, worker: Worker, event: Exit, cause: Cause) -> tuple[Cause, bool]:
    """The cause, a failure where workers are lost again and again at the same place; whether it counts by itself."""
    is_taken = event.cause in TAKEN or cause.state is WorkerState.LEFT  # whoever took it said so
    # A crash counts by itself, and a pod that comes back with more memory does not.
    is_settled = cause.crashed != (event.cause == OUT_OF_MEMORY)
    if is_taken or is_settled or job.restarts_script or job.is_over:
        return cause, True
    setbacks = job.ledger.setbacks
    is_incident = setbacks.add(job.known_progress, worker.number, job.ledger.membership.next_number)
    if cause.crashed:
        return cause, is_incident
    if not setbacks.are_failures:
        return cause, True
    place = "before anything was done" if not job.known_progress else f"no further than {_place(job)}"
    reason = (
        f"{cause.reason}; loss {setbacks.incidents} in a row with the job {place}, so it counts as a failure: "
        f"if the kernel ends workers for lack of memory, {memory.way_out(job)}"
    )
    return Cause(WorkerState.LOST, reason, crashed=True), is_incident


def _place(job: Job) -> str:
    return f"step {job.known_progress}" if job.has_rounds else f"record {job.known_progress}"


def lose(job: Job, worker: Worker, state: WorkerState, reason: str, now: float) -> Actions:
    """The worker is gone: its leases go back, its evaluations are up to the others."""
    worker.lost_as = worker.state
    worker.become(state, now, reason)
    kind = "worker-left" if state is WorkerState.LEFT else "worker-lost"
    actions: Actions = [job.note(now, kind, worker=worker.id, reason=reason)]
    job.ledger.rounds.donors.forget(worker.id)
    if job.ledger.training is not None:
        job.ledger.training.shards.release(worker.id)
    for step in job.ledger.evaluations.forget(worker.id):
        why = "abandoned: nobody holds the weights of this step any more"
        actions.append(job.note(now, "evaluation", reason=why, step=step))
    return actions


def greeted(job: Job, event: WorkerGreeted, now: float) -> Actions:
    membership = job.ledger.membership
    worker = membership.workers.get(event.worker)
    actions: Actions = []
    is_gone = worker is not None and (worker.exited or worker.condemned)
    if worker is not None and is_gone and worker.greeted_pid in (0, event.pid):
        return [send(worker.id, release=pb.Release())]  # last words of a process that is gone
    if worker is not None and worker.greeted_pid not in (0, event.pid):
        # Another process under the same name: an external worker that was started again.
        if worker.state not in GONE:
            actions += lose(job, worker, WorkerState.LOST, f"replaced by process {event.pid}", now)
        if worker.id in job.ledger.rounds.holders:
            job.ledger.rounds.holders.remove(worker.id)
            job.ledger.rounds.broken_at = now - 2 * job.spec.timing.regroup_s
        worker = None
    if worker is None:
        worker = membership.add(event.worker, WorkerState.LAUNCHING, now, external=True)
        actions.append(job.note(now, "worker-launched", worker=worker.id, reason="came by itself"))
    worker.greeted_pid = event.pid
    worker.pid = worker.pid or event.pid
    worker.host, worker.connected = event.host, True
    worker.store_address, worker.peer_address = event.store_address, event.peer_address
    actions += _compare_machines(job, event, now)
    if worker.state is WorkerState.LOST and not job.is_over:
        actions += returned(job, WorkerReturned(worker.id), now)
    if worker.state is WorkerState.LAUNCHING:
        worker.become(WorkerState.STARTING, now)
    if event.ready and worker.state is WorkerState.STARTING and not worker.expelled:
        _ready(job, worker, now)
    if event.leaving and worker.is_active:
        worker.become(WorkerState.LEAVING, now, "asked to leave")
    if event.round and not worker.expelled:
        actions += mark_entered(job, now, event.round)
    actions.append(send(worker.id, welcome=pb.Welcome()))
    return actions + messages.owed(job, worker, event.round)


def _compare_machines(job: Job, event: WorkerGreeted, now: float) -> Actions:
    """Another instruction set sums in another order: the result would depend on who computed what."""
    known, found = job.ledger.cpu_capability, event.cpu_capability
    job.ledger.cpu_capability = known or found
    if not known or not found or known == found or not job.spec.plan.reproducible:
        return []
    reason = f"computes with {found}, the others with {known}: the bits will differ; pin one with --cpu_capability"
    return [job.note(now, "worker-differs", worker=event.worker, reason=reason)]


def session_broken(job: Job, event: SessionBroken, now: float) -> Actions:
    """Not yet a loss: the process may be alive. Its exit or its silence will tell."""
    if worker := job.ledger.membership.workers.get(event.worker):
        worker.connected = False
    return []


def ready(job: Job, event: WorkerReady, now: float) -> Actions:
    worker = job.ledger.membership.workers[event.worker]
    worker.expelled = False
    worker.store_address = event.store_address or worker.store_address
    if worker.state in (WorkerState.LAUNCHING, WorkerState.STARTING):
        _ready(job, worker, now)
    if worker.state is WorkerState.MEMBER and not job.has_rounds:
        job.ledger.joined += 1
        return [job.note(now, "worker-joined", worker=worker.id)]
    return []


def _ready(job: Job, worker: Worker, now: float) -> None:
    # Without rounds there is nothing to join: a ready worker takes leases.
    worker.become(WorkerState.READY if job.has_rounds else WorkerState.MEMBER, now)
    job.ledger.ready_at = now
    if not job.has_rounds:
        job.worked()


def leaving(job: Job, event: WorkerLeaving, now: float) -> Actions:
    worker = job.ledger.membership.workers[event.worker]
    if worker.is_active:
        worker.become(WorkerState.LEAVING, now, event.reason)
    return []


def goodbye(job: Job, event: WorkerSaidGoodbye, now: float) -> Actions:
    worker = job.ledger.membership.workers[event.worker]
    actions: Actions = []
    if worker.state is WorkerState.LEAVING and worker.id in job.ledger.rounds.holders and _may_be_entered(job, worker):
        # It goes when all entered the round without it; their own word for it comes a step later.
        actions += mark_entered(job, now)
    worker.said_goodbye = True
    # Why it was asked to leave says more than that it did.
    worker.reason = worker.reason or event.reason
    if worker.external:
        actions += lose(job, worker, WorkerState.LEFT, worker.reason, now)
    return actions


def _may_be_entered(job: Job, leaver: Worker) -> bool:
    """Whether the newest round is one that a leaver waits for. It also goes when its grace is over: a newcomer that got
    no state from it has dropped the round, and begins again."""
    newest, workers = job.ledger.rounds.newest, job.ledger.membership.workers
    if newest is None or newest.forced or leaver.id in newest.workers:
        return False
    return not any(workers[member].state in (WorkerState.STARTING, WorkerState.READY) for member in newest.workers)


def failed(job: Job, event: WorkerFailed, now: float) -> Actions:
    worker = job.ledger.membership.workers[event.worker]
    worker.failure = event.message
    if is_failing(job):
        return keeping_failed(job, worker)
    if not event.permanent or job.is_over:
        return []
    reason = f"{worker.id}: {event.message}"
    return fail(job, event.message if event.wrong_job else reason, 2 if event.wrong_job else 1, now)


def fell_silent(job: Job, event: WorkerFellSilent, now: float) -> Actions:
    worker = job.ledger.membership.workers[event.worker]
    job.seen.silent_at[worker.id] = now
    return lose(job, worker, WorkerState.LOST, event.reason, now)


def returned(job: Job, event: WorkerReturned, now: float) -> Actions:
    """Taken for lost but alive: its round went on without it, so its state is worth nothing.

    Unless it had done all steps of that round (a model that is exported keeps a process busy for long), or the job has
    no rounds, and its workers no state.
    """
    worker = job.ledger.membership.workers[event.worker]
    job.seen.silent_at.pop(worker.id, None)
    reason = f"was taken for lost ({worker.reason}) and was heard again"
    has_finished = worker.lost_as is WorkerState.FINISHED and worker.id in job.ledger.rounds.holders
    if worker.lost_as is not None and (has_finished or not job.has_rounds):
        worker.become(worker.lost_as, now, reason)
        return [job.note(now, "worker-returned", worker=worker.id, reason=reason)]
    return expel(job, worker, reason, now)


def leave_overdue(job: Job, event: LeaveOverdue, now: float) -> Actions:
    worker = job.ledger.membership.workers[event.worker]
    worker.since = now
    return [SignalWorker(worker.id, signal.SIGKILL)]


def scale_asked(job: Job, event: ScaleAsked, now: float) -> Actions:
    """More are launched as time passes; of too many, the youngest leave first."""
    ledger = job.ledger
    if not event.workers:
        return []
    before, ledger.wish = ledger.wish, event.workers
    actions: Actions = [job.note(now, "scaled", reason=f"from {before} to {event.workers} workers")]
    for worker in ledger.membership.active()[event.workers :]:
        actions += ask_to_leave(worker, f"scaled to {event.workers} workers", now)
    return actions


def ask_to_leave(worker: Worker, reason: str, now: float) -> Actions:
    is_deaf = worker.state is WorkerState.LAUNCHING
    worker.become(WorkerState.LEAVING, now, reason)
    worker.leave_asked = True
    if is_deaf:
        return [SignalWorker(worker.id, signal.SIGTERM)]
    return [send(worker.id, leave=pb.Leave(reason=reason))]
