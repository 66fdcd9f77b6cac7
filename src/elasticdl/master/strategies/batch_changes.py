"""Changes of the batch size while a job trains: requested, sent to the workers, applied from a step on. Pure."""

from __future__ import annotations

from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.events import BatchChange, BatchScaled, ScaleRequested
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.rpc import elasticdl_pb2 as pb


def batch_scales_message(job: MasterState) -> pb.BatchScales:
    """All changes, planned ones included: a worker that restarts from a checkpoint repeats them at the same steps."""
    return pb.BatchScales(changes=[pb.BatchScale(**change._asdict()) for change in job.ledger.batch_changes])


def on_scale_requested(job: MasterState, event: ScaleRequested, now: float) -> list[Action]:
    """Request another batch size. The workers agree on the first update with it and report which it was."""
    if not event.batch_scale:
        return []
    changes = job.ledger.batch_changes
    changes.append(BatchChange(len(changes) + 1, -1, event.batch_scale))
    return [
        job.add_log_entry(now, "scaled", reason=f"to {_batches_text(event.batch_scale)} an update"),
        *_send_changes(job),
    ]


def on_batch_scaled(job: MasterState, event: BatchScaled, now: float) -> list[Action]:
    """Record a change that took effect. Every member reports it; the first report counts."""
    ledger = job.ledger
    if not ledger.applied_batch_change < event.change <= len(ledger.batch_changes):
        return []
    ledger.applied_batch_change = event.change
    reason = f"{_batches_text(event.scale)} an update, from step {event.step} on"
    log_entry = job.add_log_entry(now, "batch-scaled", reason=reason, step=event.step)
    if ledger.batch_changes[event.change - 1].step >= 0:  # it was planned for this step
        return [log_entry]
    # Older changes that are still waiting, or planned for a later step, are void: the newest applies.
    ledger.batch_changes = [
        change._replace(step=event.step) if change.id <= event.change and not 0 <= change.step <= event.step else change
        for change in ledger.batch_changes
    ]
    return [log_entry, *_send_changes(job)]


def _send_changes(job: MasterState) -> list[Action]:
    return [
        send_message(worker.id, batches=batch_scales_message(job))
        for worker in job.ledger.membership.present_workers()
        if worker.is_connected
    ]


def _batches_text(scale: int) -> str:
    return "1 batch" if scale == 1 else f"{scale} batches"
