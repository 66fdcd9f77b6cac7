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
    newest = Round(event.round, event.members, event.is_forced, event.reason, now)
    is_open = rounds.newest is not None and not rounds.is_entered and not rounds.newest.is_forced
    if event.is_forced:
        rounds.superseded = []
    elif rounds.newest is not None and is_open:
        rounds.superseded.append(rounds.newest)
    rounds.newest, rounds.finished_scripts, rounds.halted_at = newest, [], None
    rounds.donors.chosen |= {seat.worker: WorkerId(seat.donor) for seat in newest.members if seat.donor}
    for worker in job.ledger.membership.present_workers():
        if worker.state is WorkerState.JOINING and worker.id not in newest.workers:
            worker.set_state(WorkerState.READY, now)
    for member in newest.workers:
        if event.is_forced and workers[member].state is not WorkerState.LEAVING:
            workers[member].set_state(WorkerState.MEMBER, now)
        elif workers[member].state is WorkerState.READY:
            workers[member].set_state(WorkerState.JOINING, now)
    if event.is_forced:
        rounds.holders = list(newest.workers)
        if event.reason == FAILED_REASON:
            actions += _count_failed_round(job, now)
        rounds.failed_at, rounds.failed_on = None, []
        if isinstance(job.ledger.phase, PendingPhase):
            job.ledger.phase = RunningPhase()
    message = messages.round_message(job, newest)
    concerned = [*newest.workers, *(w for w in before if w not in newest.workers and workers[w].is_present)]
    actions += [send_message(worker, round=message) for worker in concerned]
    if isinstance(job.ledger.phase, StoppingPhase):
        stop = pb.StopTraining(reason=job.ledger.phase.reason)
        actions += [send_message(worker, stop=stop) for worker in newest.workers]
    return actions


def mark_entered(job: MasterState, now: float, round_id: int = 0) -> Actions:
    """This round, or the newest, is the one that trains: all have voted for it, so one member's word is enough."""
    rounds, workers = job.ledger.rounds, job.ledger.membership.workers
    entered = rounds.find_pending(round_id or (rounds.newest.id if rounds.newest else 0))
    if entered is None:
        return []
    first = rounds.current is None
    newcomers = [w for w in entered.workers if rounds.current is None or w not in rounds.current.workers]
    rounds.current = entered
    rounds.superseded = [known for known in rounds.superseded if known.id > entered.id]
    rounds.holders = list(entered.workers)
    rounds.failed_at, rounds.failed_on, rounds.entry_gaps_s = None, [], {}
    rounds.failed_in_a_row = rounds.stalls = 0
    rounds.donors.record_entered(entered.workers)
    actions: Actions = []
    for newcomer in newcomers:
        job.ledger.joined_count += 1
        why = "from the start" if first else ""
        actions.append(job.add_log_entry(now, "worker-joined", worker=newcomer, reason=why))
    for member in entered.workers:
        if workers[member].state in (WorkerState.READY, WorkerState.JOINING):
            workers[member].set_state(WorkerState.MEMBER, now)
    job.record_useful_work()
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
    rounds.entry_gaps_s[event.worker] = event.gap_s
    if set(rounds.entry_gaps_s) >= set(current.workers):
        actions += log_round(job, now)
    return actions


def log_round(job: MasterState, now: float) -> Actions:
    """One entry for a round that was entered, with what it cost: the longest gap of any member."""
    rounds = job.ledger.rounds
    if rounds.current is None or not rounds.entry_gaps_s:
        return []
    cost_s = max(rounds.entry_gaps_s.values())
    rounds.entry_gaps_s = {}
    return [job.add_log_entry(now, "round-entered", reason=rounds.current.reason, cost_s=cost_s)]


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
    if newest.is_forced and event.round != newest.id:
        return []  # an echo of the round before: this one already answers it
    if event.round == newest.id and not rounds.is_entered:
        # Perhaps it was entered just now: then its newcomers hold the state, too.
        rounds.holders += [worker for worker in newest.workers if worker not in rounds.holders]
    if rounds.failed_at is None:
        rounds.failed_at, rounds.failure_reason = now, event.why
    if event.worker not in rounds.failed_on:
        rounds.failed_on.append(event.worker)
    return []


def _count_failed_round(job: MasterState, now: float) -> Actions:
    """Said once, however often it is tried again."""
    rounds = job.ledger.rounds
    rounds.failed_in_a_row += 1
    if rounds.failed_in_a_row > 1:
        return []
    rounds.failing_since = now
    return [
        job.add_log_entry(
            now, "round-broken", reason=f"{rounds.failure_reason}; all its members seem alive: it is tried again"
        )
    ]


def _retry_state_transfer(job: MasterState, newcomer: Worker, event: RoundFailed, now: float) -> Actions:
    """The newcomer begins again, with another donor where there is one; nobody waits for it meanwhile."""
    rounds, donor = job.ledger.rounds, WorkerId(event.donor)
    reason = f"got no state from {donor}: {event.why}"
    if rounds.donors.chosen.get(newcomer.id) != donor:
        return reset_worker(job, newcomer, reason, now)  # planned anew meanwhile: nobody failed
    rounds.donors.record_failure(donor, newcomer.id)
    holders = job.possible_donors([h.id for h in job.present_holders() if h.state is not WorkerState.LEAVING])
    pause_s = rounds.donors.retry_delay_s(newcomer.id, holders)
    newcomer.join_after = now + pause_s
    if pause_s:
        reason += (
            f"; {'nobody else has it' if len(holders) == 1 else 'nor from anyone else'}, tried again in {pause_s:g} s"
        )
    elif holders:
        reason += f"; {rounds.donors.assign([newcomer.id], holders)[newcomer.id]} is asked instead"
    return reset_worker(job, newcomer, reason, now, kind="handover-failed")


def reset_worker(job: MasterState, worker: Worker, reason: str, now: float, kind: str = "worker-returned") -> Actions:
    """The state it holds is worth nothing any more: it drops it and says Ready again."""
    worker.must_reset, worker.has_said_goodbye = True, False
    worker.set_state(WorkerState.STARTING, now, reason)
    return [
        send_message(worker.id, expelled=pb.Expelled(reason=reason)),
        job.add_log_entry(now, kind, worker=worker.id, reason=reason),
    ]


def on_worker_finished(job: MasterState, event: WorkerFinished, now: float) -> Actions:
    ledger = job.ledger
    worker = ledger.membership.workers[event.worker]
    if worker.is_present:
        worker.set_state(WorkerState.FINISHED, now, event.why)
    ledger.step = max(ledger.step, event.step)
    ledger.records = max(ledger.records, event.records)
    ledger.progress = max(ledger.progress, event.progress)
    if ledger.finish_reason in ("", GENERIC_STOP_REASON):  # one worker may know more than the others
        ledger.finish_reason = event.why
    ledger.loss_curve.add_last_step(event.step, event.loss, event.epoch)
    return []


def on_losses_reported(job: MasterState, event: LossesReported, now: float) -> Actions:
    """Draw what is new, and let all who hold the state forget what is known."""
    curve, before = job.ledger.loss_curve, job.ledger.loss_curve.complete_until
    began_at = job.ledger.rounds.newest.planned_at if job.ledger.rounds.newest is not None else now
    points, epochs = curve.add_report(event, began_at, now)
    if event.points:
        step, _, _, records = event.points[-1]
        job.ledger.step, job.ledger.records = max(job.ledger.step, step), max(job.ledger.records, records)
    actions: Actions = [RecordLosses(tuple(points), tuple(epochs))] if points or epochs else []
    actions += [log_epoch(job, epoch, now) for epoch in epochs]
    if curve.complete_until > before:
        known = pb.LossesKnown(step=curve.complete_until)
        actions += [send_message(worker.id, losses_known=known) for worker in job.present_holders()]
    return actions


def log_epoch(job: MasterState, epoch: EpochLoss, now: float) -> Action:
    reason = f"epoch {epoch.epoch} of {job.epochs}: mean loss {epoch.loss:.6g} over {epoch.records:,} records"
    return job.add_log_entry(now, "epoch-ended", reason=reason, step=epoch.step)


def on_checkpoint_written(job: MasterState, event: CheckpointWritten, now: float) -> Actions:
    job.ledger.step = max(job.ledger.step, event.step)
    job.ledger.checkpoint = (event.step, event.path)
    if job.ledger.checkpoint_writer == event.worker:
        job.ledger.checkpoint_writer = None
    reason = f"{event.path}, written in {event.seconds:.3f} s"
    return [
        job.add_log_entry(
            now, "checkpoint", worker=event.worker, reason=reason, step=event.step, cost_s=round(event.copy_s, 6)
        )
    ]


def on_model_exported(job: MasterState, event: ModelExported, now: float) -> Actions:
    job.ledger.is_exported, job.ledger.output = True, event.path
    if not event.path:
        return []
    return [job.add_log_entry(now, "exported", worker=event.worker, reason=event.path)]


def on_plan_reported(job: MasterState, event: DataPlanReported, now: float) -> Actions:
    if job.ledger.plan is None:
        job.ledger.plan = event
    return []


def on_progress_recorded(job: MasterState, event: ProgressRecorded, now: float) -> Actions:
    job.ledger.step = max(job.ledger.step, event.step)
    job.ledger.records = max(job.ledger.records, event.records)
    return []
