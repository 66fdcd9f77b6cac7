"""All-reduce training, event by event: rounds planned, entered and failed; workers finished. Pure."""

from __future__ import annotations

from elasticdl.master.machine import messages
from elasticdl.master.machine.actions import Action, RecordLosses
from elasticdl.master.machine.events import (
    CheckpointWritten,
    DataPlanReported,
    EpochLoss,
    LossesReported,
    ModelExported,
    ProgressRecorded,
    RoundEntered,
    RoundEntryObserved,
    RoundFailed,
    RoundPlanned,
    WorkerFinished,
)
from elasticdl.master.machine.membership import Worker, WorkerState
from elasticdl.master.machine.phase import PendingPhase, RunningPhase, StoppingPhase
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.master.strategies.rounds import FAILED_REASON, Round
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import WorkerId

Actions = list[Action]

GENERIC_STOP_REASON = "stopped"  # what a worker says that was told to stop, but not why


def on_round_planned(job: MasterState, event: RoundPlanned, now: float) -> Actions:
    rounds, workers = job.ledger.rounds, job.ledger.membership.workers
    actions = log_round(job, now)
    before = list(rounds.holders)
    newest = Round(event.round, event.seats, event.forced, event.reason, now)
    is_open = rounds.newest is not None and not rounds.is_entered and not rounds.newest.forced
    if event.forced:
        rounds.superseded = []
    elif rounds.newest is not None and is_open:
        rounds.superseded.append(rounds.newest)
    rounds.newest, rounds.done, rounds.halted_at = newest, [], None
    rounds.donors.chosen |= {seat.worker: WorkerId(seat.donor) for seat in newest.seats if seat.donor}
    for worker in job.ledger.membership.here():
        if worker.state is WorkerState.JOINING and worker.id not in newest.workers:
            worker.become(WorkerState.READY, now)
    for member in newest.workers:
        if event.forced and workers[member].state is not WorkerState.LEAVING:
            workers[member].become(WorkerState.MEMBER, now)
        elif workers[member].state is WorkerState.READY:
            workers[member].become(WorkerState.JOINING, now)
    if event.forced:
        rounds.holders = list(newest.workers)
        if event.reason == FAILED_REASON:
            actions += _count_failed_round(job, now)
        rounds.broken_at, rounds.broken_by = None, []
        if isinstance(job.ledger.phase, PendingPhase):
            job.ledger.phase = RunningPhase()
    message = messages.round_message(job, newest)
    concerned = [*newest.workers, *(w for w in before if w not in newest.workers and workers[w].is_here)]
    actions += [send_message(worker, round=message) for worker in concerned]
    if isinstance(job.ledger.phase, StoppingPhase):
        stop = pb.StopTraining(reason=job.ledger.phase.reason)
        actions += [send_message(worker, stop=stop) for worker in newest.workers]
    return actions


def mark_entered(job: MasterState, now: float, round_id: int = 0) -> Actions:
    """This round, or the newest, is the one that trains: all have voted for it, so one member's word is enough."""
    rounds, workers = job.ledger.rounds, job.ledger.membership.workers
    entered = rounds.find(round_id or (rounds.newest.id if rounds.newest else 0))
    if entered is None:
        return []
    first = rounds.current is None
    newcomers = [w for w in entered.workers if rounds.current is None or w not in rounds.current.workers]
    rounds.current = entered
    rounds.superseded = [known for known in rounds.superseded if known.id > entered.id]
    rounds.holders = list(entered.workers)
    rounds.broken_at, rounds.broken_by, rounds.gaps = None, [], {}
    rounds.fruitless = rounds.stalls = 0
    rounds.donors.settle(entered.workers)
    actions: Actions = []
    for newcomer in newcomers:
        job.ledger.joined += 1
        why = "from the start" if first else ""
        actions.append(job.note(now, "worker-joined", worker=newcomer, reason=why))
    for member in entered.workers:
        if workers[member].state in (WorkerState.READY, WorkerState.JOINING):
            workers[member].become(WorkerState.MEMBER, now)
    job.worked()
    return actions


def on_round_entry_observed(job: MasterState, event: RoundEntryObserved, now: float) -> Actions:
    return mark_entered(job, now, event.round)


def on_round_entered(job: MasterState, event: RoundEntered, now: float) -> Actions:
    rounds = job.ledger.rounds
    job.ledger.step = max(job.ledger.step, event.step)
    actions = mark_entered(job, now, event.round)
    current = rounds.current
    if current is None or event.round != current.id or event.worker not in current.workers:
        return actions
    rounds.gaps[event.worker] = event.gap_s
    if set(rounds.gaps) >= set(current.workers):
        actions += log_round(job, now)
    return actions


def log_round(job: MasterState, now: float) -> Actions:
    """One entry for a round that was entered, with what it cost: the longest gap of any member."""
    rounds = job.ledger.rounds
    if rounds.current is None or not rounds.gaps:
        return []
    cost_s = max(rounds.gaps.values())
    rounds.gaps = {}
    return [job.note(now, "round-entered", reason=rounds.current.reason, cost_s=cost_s)]


def on_round_failed(job: MasterState, event: RoundFailed, now: float) -> Actions:
    rounds = job.ledger.rounds
    newest = rounds.newest
    worker = job.ledger.membership.workers[event.worker]
    if newest is None:
        return []
    if event.worker not in rounds.holders:
        # A newcomer whose hand-over failed, or whose round a forced one without it replaced: nobody waits for
        # it, it begins again. Should it have entered the round, its members say so themselves.
        if not worker.is_active:
            return []
        if event.donor:
            return _retry_state_transfer(job, worker, event, now)
        return reset_worker(job, worker, f"dropped round {event.round}: {event.why}", now)
    if newest.forced and event.round != newest.id:
        return []  # an echo of the round before: this one already answers it
    if event.round == newest.id and not rounds.is_entered:
        # Perhaps it was entered just now: then its newcomers hold the state, too.
        rounds.holders += [worker for worker in newest.workers if worker not in rounds.holders]
    if rounds.broken_at is None:
        rounds.broken_at, rounds.broken_why = now, event.why
    if event.worker not in rounds.broken_by:
        rounds.broken_by.append(event.worker)
    return []


def _count_failed_round(job: MasterState, now: float) -> Actions:
    """Said once, however often it is tried again."""
    rounds = job.ledger.rounds
    rounds.fruitless += 1
    if rounds.fruitless > 1:
        return []
    rounds.fruitless_since = now
    return [job.note(now, "round-broken", reason=f"{rounds.broken_why}; all its members seem alive: it is tried again")]


def _retry_state_transfer(job: MasterState, newcomer: Worker, event: RoundFailed, now: float) -> Actions:
    """The newcomer begins again, with another donor where there is one; nobody waits for it meanwhile."""
    rounds, donor = job.ledger.rounds, WorkerId(event.donor)
    reason = f"got no state from {donor}: {event.why}"
    if rounds.donors.chosen.get(newcomer.id) != donor:
        return reset_worker(job, newcomer, reason, now)  # planned anew meanwhile: nobody failed
    rounds.donors.fail(donor, newcomer.id)
    holders = job.possible_donors([h.id for h in job.holders_here() if h.state is not WorkerState.LEAVING])
    pause_s = rounds.donors.pause_s(newcomer.id, holders)
    newcomer.join_after = now + pause_s
    if pause_s:
        reason += (
            f"; {'nobody else has it' if len(holders) == 1 else 'nor from anyone else'}, tried again in {pause_s:g} s"
        )
    elif holders:
        reason += f"; {rounds.donors.deal([newcomer.id], holders)[newcomer.id]} is asked instead"
    return reset_worker(job, newcomer, reason, now, kind="handover-failed")


def reset_worker(job: MasterState, worker: Worker, reason: str, now: float, kind: str = "worker-returned") -> Actions:
    """The state it holds is worth nothing any more: it drops it and says Ready again."""
    worker.expelled, worker.said_goodbye = True, False
    worker.become(WorkerState.STARTING, now, reason)
    return [
        send_message(worker.id, expelled=pb.Expelled(reason=reason)),
        job.note(now, kind, worker=worker.id, reason=reason),
    ]


def on_worker_finished(job: MasterState, event: WorkerFinished, now: float) -> Actions:
    ledger = job.ledger
    worker = ledger.membership.workers[event.worker]
    if worker.is_here:
        worker.become(WorkerState.FINISHED, now, event.why)
    ledger.step = max(ledger.step, event.step)
    ledger.records = max(ledger.records, event.records)
    ledger.progress = max(ledger.progress, event.progress)
    if ledger.finish_reason in ("", GENERIC_STOP_REASON):  # one worker may know more than the others
        ledger.finish_reason = event.why
    ledger.losses.finish(event.step, event.loss, event.epoch)
    return []


def on_losses_reported(job: MasterState, event: LossesReported, now: float) -> Actions:
    """Draw what is new, and let all who hold the state forget what is known."""
    curve, before = job.ledger.losses, job.ledger.losses.known
    began_at = job.ledger.rounds.newest.planned_at if job.ledger.rounds.newest is not None else now
    points, epochs = curve.take(event, began_at, now)
    if event.points:
        step, _, _, records = event.points[-1]
        job.ledger.step, job.ledger.records = max(job.ledger.step, step), max(job.ledger.records, records)
    actions: Actions = [RecordLosses(tuple(points), tuple(epochs))] if points or epochs else []
    actions += [log_epoch(job, epoch, now) for epoch in epochs]
    if curve.known > before:
        known = pb.LossesKnown(step=curve.known)
        actions += [send_message(worker.id, losses_known=known) for worker in job.holders_here()]
    return actions


def log_epoch(job: MasterState, epoch: EpochLoss, now: float) -> Action:
    reason = f"epoch {epoch.epoch} of {job.epochs}: mean loss {epoch.loss:.6g} over {epoch.records:,} records"
    return job.note(now, "epoch-ended", reason=reason, step=epoch.step)


def on_checkpoint_written(job: MasterState, event: CheckpointWritten, now: float) -> Actions:
    job.ledger.step = max(job.ledger.step, event.step)
    job.ledger.checkpoint = (event.step, event.path)
    if job.ledger.saver == event.worker:
        job.ledger.saver = None
    reason = f"{event.path}, written in {event.seconds:.3f} s"
    return [
        job.note(now, "checkpoint", worker=event.worker, reason=reason, step=event.step, cost_s=round(event.copy_s, 6))
    ]


def on_model_exported(job: MasterState, event: ModelExported, now: float) -> Actions:
    job.ledger.is_exported, job.ledger.output = True, event.path
    if not event.path:
        return []
    return [job.note(now, "exported", worker=event.worker, reason=event.path)]


def on_plan_reported(job: MasterState, event: DataPlanReported, now: float) -> Actions:
    if job.ledger.plan is None:
        job.ledger.plan = event
    return []


def on_progress_recorded(job: MasterState, event: ProgressRecorded, now: float) -> Actions:
    job.ledger.step = max(job.ledger.step, event.step)
    job.ledger.records = max(job.ledger.records, event.records)
    return []
