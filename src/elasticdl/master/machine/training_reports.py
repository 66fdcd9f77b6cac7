"""Handles what workers report in any training: plan, losses, checkpoints, the exported model and the end. Pure."""

from __future__ import annotations

from elasticdl.master.machine.actions import Action, RecordLosses
from elasticdl.master.machine.events import (
    CheckpointWritten,
    DataPlanReported,
    EpochLoss,
    LossesReported,
    ModelExported,
    ProgressRecorded,
    WorkerFinished,
)
from elasticdl.master.machine.membership import WorkerState
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.rpc import elasticdl_pb2 as pb

Actions = list[Action]

GENERIC_STOP_REASON = "stopped"  # what a worker reports if it was told to stop without a reason


def on_worker_finished(job: MasterState, event: WorkerFinished, now: float) -> Actions:
    return job.strategy.on_worker_finished(job, event, now)


def record_worker_finished(job: MasterState, event: WorkerFinished, now: float) -> Actions:
    """Record the end of a worker that has done all steps or stopped."""
    ledger = job.ledger
    worker = ledger.membership.workers[event.worker]
    if worker.is_present:
        worker.set_state(WorkerState.FINISHED, now, event.reason)
    ledger.step = max(ledger.step, event.step)
    ledger.records = max(ledger.records, event.records)
    ledger.progress = max(ledger.progress, event.progress)
    if ledger.finish_reason in ("", GENERIC_STOP_REASON):  # another worker may know the reason
        ledger.finish_reason = event.reason
    ledger.loss_curve.add_last_step(event.step, event.loss, event.epoch)
    return []


def on_losses_reported(job: MasterState, event: LossesReported, now: float) -> Actions:
    """Record new points, and tell the holders of the state which points are journaled."""
    curve, complete_before = job.ledger.loss_curve, job.ledger.loss_curve.complete_until
    began_at = job.ledger.rounds.newest.planned_at if job.ledger.rounds.newest is not None else now
    points, epochs = curve.add_report(event, began_at, now)
    if event.points:
        step, _, _, records = event.points[-1]
        job.ledger.step, job.ledger.records = max(job.ledger.step, step), max(job.ledger.records, records)
    actions: Actions = [RecordLosses(tuple(points), tuple(epochs))] if points or epochs else []
    actions += [log_epoch(job, epoch, now) for epoch in epochs]
    if curve.complete_until > complete_before:
        journaled = pb.LossesJournaled(step=curve.complete_until)
        actions += [send_message(worker.id, losses_journaled=journaled) for worker in job.present_holders()]
    return actions


def log_epoch(job: MasterState, epoch: EpochLoss, now: float) -> Action:
    reason = (
        f"epoch {epoch.epoch} of {job.strategy.epochs(job)}: mean loss {epoch.loss:.6g} over {epoch.records:,} records"
    )
    return job.add_log_entry(now, "epoch-ended", reason=reason, step=epoch.step)


def on_checkpoint_written(job: MasterState, event: CheckpointWritten, now: float) -> Actions:
    job.ledger.step = max(job.ledger.step, event.step)
    job.ledger.checkpoint = (event.step, event.path)
    if job.ledger.checkpoint_writer == event.worker:
        job.ledger.checkpoint_writer = None
    reason = f"{event.path}, written in {event.seconds:.3f} s"
    return [
        job.add_log_entry(
            now, "checkpoint", replica=event.worker, reason=reason, step=event.step, cost_s=round(event.copy_s, 6)
        )
    ]


def on_model_exported(job: MasterState, event: ModelExported, now: float) -> Actions:
    job.ledger.is_exported, job.ledger.output = True, event.path
    if not event.path:
        return []
    return [job.add_log_entry(now, "exported", replica=event.worker, reason=event.path)]


def on_plan_reported(job: MasterState, event: DataPlanReported, now: float) -> Actions:
    if job.ledger.plan is None:
        job.ledger.plan = event
    return job.strategy.on_plan_reported(job, event, now)


def on_progress_recorded(job: MasterState, event: ProgressRecorded, now: float) -> Actions:
    job.ledger.step = max(job.ledger.step, event.step)
    job.ledger.records = max(job.ledger.records, event.records)
    return []
