"""Training by leases, event by event and decision by decision: all of the model is on ps, workers take shards. Pure.

One worker makes the first state. Then the positions of the plan are handed out; whenever enough is done an
evaluation is opened or a checkpoint asked for. Where training waits for evaluations, nothing is handed out beyond the
place of the next one until its result is there: what is evaluated, and kept, is one state. When the data is drained,
or a callback has ended the training, one worker writes the last checkpoint and the model.
"""

from __future__ import annotations

from elasticdl.master.machine import stalls
from elasticdl.master.machine.actions import Action, RecordLosses
from elasticdl.master.machine.events import (
    CheckpointRequested,
    DataPlanReported,
    EpochLoss,
    EvaluationDue,
    Event,
    ExportRequested,
    InitializerChosen,
    JobEnded,
    LeaseReport,
)
from elasticdl.master.machine.membership import Worker, WorkerState
from elasticdl.master.machine.phase import Outcome, PendingPhase, RunningPhase, StoppingPhase
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.master.strategies import training_progress
from elasticdl.master.strategies.allreduce import log_epoch
from elasticdl.master.strategies.evaluation import OpenEvaluation
from elasticdl.master.strategies.loss_curve import LossPoint
from elasticdl.master.strategies.shards import ShardQueue, TrainingQueue
from elasticdl.rpc import elasticdl_pb2 as pb

Actions = list[Action]

LOSS_METRIC = "loss"  # what a report of a training lease has sums of

# ---- events


def on_initializer_chosen(job: MasterState, event: InitializerChosen, now: float) -> Actions:
    job.ledger.initializer = event.worker
    return [send_message(event.worker, prepare=pb.Prepare())]


def on_plan_reported(job: MasterState, event: DataPlanReported, now: float) -> Actions:
    """The first state is made: the data can be handed out, from where the checkpoint it came from was."""
    ledger = job.ledger
    if ledger.training is not None or event.worker != ledger.initializer:
        return []
    queue = TrainingQueue.create(job.spec, event.total_records, ledger.started_at)
    ledger.training = queue = training_progress.restore_queue(event.progress, queue) if event.progress else queue
    ledger.evaluated_records, ledger.checkpointed_batches = queue.shards.done_records, queue.batches_done
    ledger.loss_curve.complete_until = queue.batches_done
    ledger.loss_curve.ended_epochs = (
        queue.shards.done_records // event.records_per_epoch if event.records_per_epoch else 0
    )
    if isinstance(ledger.phase, PendingPhase):
        ledger.phase = RunningPhase()
    return []


def apply_report(job: MasterState, worker: Worker, said: LeaseReport, now: float) -> Actions | None:
    """Take a report of a training lease. None: it is of another kind. Raises PoisonShard."""
    queue = job.ledger.training
    if queue is None or said.lease not in queue.shards.leases:
        return None
    if said.finished and not said.failure:
        is_taken = queue.finish(said.lease, worker.id)
    else:
        is_taken = queue.shards.advance(said.lease, worker.id, said.done, now)
        if is_taken and said.failure:
            queue.shards.fail(said.lease, said.failure, job.spec.timing.lease_attempts)
    job.ledger.records, job.ledger.step = queue.shards.done_records, queue.batches_done
    job.observed.record_progress(queue.batches_done, queue.shards.done_records, now)
    return _record_losses(job, said, now) if is_taken else []


def _record_losses(job: MasterState, said: LeaseReport, now: float) -> Actions:
    """Points of the loss curve and the ends of epochs that a report completes.

    A batch counts in the point and in the epoch that were open when it was reported as done: each of them once.
    """
    queue, plan, curve = job.ledger.training, job.ledger.plan, job.ledger.loss_curve
    assert queue is not None and plan is not None
    for name, values, records in said.sums:
        if name == LOSS_METRIC:
            curve.add_batches(values[0], records)
    done, step, is_end = queue.shards.done_records, queue.batches_done, queue.shards.is_drained
    every = job.spec.observability.loss_interval(-(-plan.total_records // queue.minibatch))
    points, epochs = list[LossPoint](), list[EpochLoss]()
    if step // every > curve.complete_until // every or is_end:
        curve.complete_until = step
        if (point := curve.close_window(step, now)) is not None:
            points.append(point)
    ended = done // plan.records_per_epoch if plan.records_per_epoch else 0
    if curve.epoch_mean.records and (ended > curve.ended_epochs or is_end):
        epochs.append(curve.close_epoch(max(ended, curve.ended_epochs + 1), step))
    if not points and not epochs:
        return []
    return [RecordLosses(tuple(points), tuple(epochs)), *(log_epoch(job, epoch, now) for epoch in epochs)]


def on_evaluation_due(job: MasterState, event: EvaluationDue, now: float) -> Actions:
    ledger = job.ledger
    ledger.evaluated_records = event.records
    assert ledger.plan is not None
    queue = ShardQueue("validation", ledger.plan.validation_records, job.spec.data.shard_records)
    ledger.evaluations.open[event.step] = OpenEvaluation(event.step, queue, holders=None)
    return []


def on_checkpoint_requested(job: MasterState, event: CheckpointRequested, now: float) -> Actions:
    job.ledger.checkpoint_writer, job.ledger.checkpointed_batches = event.worker, event.step
    return [send_message(event.worker, save=pb.Save(step=event.step, progress=training_progress.dump_progress(job)))]


def expire_lease(job: MasterState, lease_id: int, now: float) -> Actions:
    """A worker that makes no progress hangs: it is replaced, its shard goes to others. Raises PoisonShard."""
    queue = job.ledger.training
    lease = queue.shards.leases.get(lease_id) if queue else None
    if queue is None or lease is None:
        return []
    why = f"no progress for {job.spec.timing.lease_s:g} s"
    queue.shards.fail(lease_id, why, job.spec.timing.lease_attempts)
    return stalls.handle_expired_lease(
        job, lease.worker, f"training[{lease.start}:{lease.stop}] taken back: {why}", now
    )


# ---- decisions


def next_decision(job: MasterState, now: float) -> Event | None:
    if not job.trains_by_leases:
        return None
    for decide in (_decide_initializer, _decide_evaluation, _decide_checkpoint, _decide_end):
        if (event := decide(job, now)) is not None:
            return event
    return None


def is_done(job: MasterState) -> bool:
    """Whether no work will come any more: all is trained, and the last evaluation is over."""
    ledger = job.ledger
    if ledger.training is None or ledger.evaluations.open:
        return False
    if ledger.end_reason:
        return not ledger.training.shards.leases
    if not ledger.training.shards.is_drained:
        return False
    is_evaluated = ledger.evaluations.newest == ledger.training.batches_done
    return is_evaluated or ledger.plan is None or not ledger.plan.validation_records


def can_train(job: MasterState) -> bool:
    """Whether training data may be handed out now."""
    ledger = job.ledger
    if ledger.training is None or ledger.end_reason or isinstance(ledger.phase, StoppingPhase):
        return False
    return not _awaits_evaluation(job) or bool(ledger.training.shards.returned)


def _awaits_evaluation(job: MasterState) -> bool:
    """Whether an evaluation is awaited: what is handed out is trained to its end, and no more of it."""
    ledger = job.ledger
    if not job.spec.evaluation.wait or ledger.training is None or not (ledger.plan and ledger.plan.validation_records):
        return False
    shards = ledger.training.shards
    handed_out = min(shards.next_shard * shards.shard_records, shards.records)
    return bool(ledger.evaluations.open) or _is_evaluation_due(job, handed_out)


def _is_idle(job: MasterState) -> bool:
    """Whether nobody trains."""
    assert job.ledger.training is not None
    return not (job.ledger.training.shards.leases or job.ledger.training.shards.returned)


def _is_evaluation_due(job: MasterState, records: int) -> bool:
    """Whether an evaluation lies between the newest one and so many trained records."""
    ledger, when = job.ledger, job.spec.evaluation
    assert ledger.training is not None and ledger.plan is not None
    by_steps = when.steps * ledger.training.minibatch
    by_epochs = (when.epochs or (0 if when.steps else 1)) * ledger.plan.records_per_epoch
    return any(every and records // every > ledger.evaluated_records // every for every in (by_steps, by_epochs))


def _members(job: MasterState) -> list[Worker]:
    wanted = (WorkerState.MEMBER, WorkerState.FINISHED)
    return [w for w in job.ledger.membership.workers.values() if w.is_present and w.state in wanted]


def _decide_initializer(job: MasterState, now: float) -> Event | None:
    ledger = job.ledger
    if (
        ledger.training is not None
        or not ledger.fleet.is_ready
        or not isinstance(ledger.phase, PendingPhase | RunningPhase)
    ):
        return None
    if ledger.initializer is not None and ledger.membership.is_present(ledger.initializer):
        return None
    ready = [worker.id for worker in _members(job)]
    return InitializerChosen(ready[0]) if ready else None


def _decide_evaluation(job: MasterState, now: float) -> Event | None:
    ledger = job.ledger
    if ledger.training is None or ledger.plan is None or not ledger.plan.validation_records or ledger.evaluations.open:
        return None
    queue, shards = ledger.training, ledger.training.shards
    if ledger.end_reason or (_awaits_evaluation(job) and not _is_idle(job)):
        return None
    is_last = shards.is_drained and ledger.evaluations.newest != queue.batches_done
    is_due = _is_evaluation_due(job, shards.done_records)
    return EvaluationDue(queue.batches_done, shards.done_records) if is_due or is_last else None


def _decide_checkpoint(job: MasterState, now: float) -> Event | None:
    ledger, every = job.ledger, job.spec.checkpoint.steps
    if ledger.training is None or not every or not isinstance(ledger.phase, RunningPhase):
        return None
    if _awaits_evaluation(job) and not _is_idle(job):
        return None  # the state that is evaluated is kept
    done = ledger.training.batches_done
    if done // every <= ledger.checkpointed_batches // every or ledger.training.shards.is_drained:
        return None
    able = [worker.id for worker in _members(job) if worker.state is WorkerState.MEMBER]
    return CheckpointRequested(able[0], done) if able else None


def _decide_end(job: MasterState, now: float) -> Event | None:
    ledger, phase = job.ledger, job.ledger.phase
    members = _members(job)
    if isinstance(phase, StoppingPhase):
        outcome: Outcome = "failed" if phase.failure_exit_code else "stopped"
        if not members:
            return JobEnded(outcome, f"{phase.reason}; no worker was left to write a checkpoint", False)
        if now >= phase.deadline:
            return JobEnded(outcome, f"{phase.reason}; workers did not end in time", True)
    finished = [worker for worker in members if worker.state is WorkerState.FINISHED]
    if not finished or len(finished) < len(members):
        return None
    is_complete = ledger.training is not None and (ledger.training.shards.is_drained or bool(ledger.end_reason))
    if not ledger.is_exported:
        is_asked = ledger.export is not None and any(worker.id == ledger.export[0] for worker in finished)
        return None if is_asked else ExportRequested(finished[0].id, job.spec.output if is_complete else "")
    if isinstance(phase, StoppingPhase) and phase.failure_exit_code:
        return JobEnded("failed", phase.reason, False)
    if isinstance(phase, StoppingPhase) and not is_complete:
        return JobEnded("stopped", phase.reason, False)
    if not is_complete:
        return JobEnded("failed", "all workers ended before all records were trained", False)
    return JobEnded("succeeded", ledger.end_reason or ledger.finish_reason or "all records are trained", False)
