"""Lease training: the whole model is on the ps, and workers take shards of the training data. Pure.

One worker creates the first state. Then shards of the plan are handed out. At the configured intervals an evaluation is
opened or a checkpoint requested. If training waits for evaluations, no shard beyond the next evaluation is handed out
until its result is known, so that one state is evaluated and saved. When the data is drained, or a callback has ended
the training, one worker writes the last checkpoint and the model.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticdl.master.machine import decisions, messages, stalls
from elasticdl.master.machine.actions import Action, RecordLosses
from elasticdl.master.machine.events import (
    CheckpointRequested,
    DataPlanReported,
    EpochLoss,
    EvaluationDue,
    Event,
    ExportRequested,
    HeartbeatReceived,
    InitializerChosen,
    JobEnded,
    LeaseReport,
    WorkerFinished,
)
from elasticdl.master.machine.membership import Worker, WorkerState
from elasticdl.master.machine.phase import Outcome, PendingPhase, RunningPhase, StoppingPhase
from elasticdl.master.machine.silence import find_silent_worker
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.master.machine.training_reports import log_epoch, record_worker_finished
from elasticdl.master.ps_fleet import fleet_decisions
from elasticdl.master.strategies import training_progress
from elasticdl.master.strategies.base import JobStrategy
from elasticdl.master.strategies.evaluation import OpenEvaluation
from elasticdl.master.strategies.loss_curve import LossPoint
from elasticdl.master.strategies.shards import ShardQueue, SourcedLease, TrainingQueue
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import Phase, WorkerId

Actions = list[Action]

LOSS_METRIC = "loss"  # the sums that reports of training leases have

# ---- events


def on_initializer_chosen(job: MasterState, event: InitializerChosen, now: float) -> Actions:
    job.ledger.initializer = event.worker
    return [send_message(event.worker, initialize=pb.Initialize())]


def _record_losses(job: MasterState, queue: TrainingQueue, report: LeaseReport, now: float) -> Actions:
    """Record the points of the loss curve and the epochs that a report completes.

    A batch counts once, in the point and in the epoch that were open when it was reported as done.
    """
    plan, curve = job.ledger.plan, job.ledger.loss_curve
    assert plan is not None
    for name, values, records in report.sums:
        if name == LOSS_METRIC:
            curve.add_batches(values[0], records)
    done, step, is_end = queue.shards.done_records, queue.batches_done, queue.shards.is_drained
    interval = job.spec.observability.loss_interval(-(-plan.total_records // queue.minibatch))
    points, epochs = list[LossPoint](), list[EpochLoss]()
    if step // interval > curve.complete_until // interval or is_end:
        curve.complete_until = step
        if (point := curve.close_window(step, now)) is not None:
            points.append(point)
    ended_epochs = done // plan.records_per_epoch if plan.records_per_epoch else 0
    if curve.epoch_mean.records and (ended_epochs > curve.ended_epochs or is_end):
        epochs.append(curve.close_epoch(max(ended_epochs, curve.ended_epochs + 1), step))
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
    return [
        send_message(
            event.worker,
            write_checkpoint=pb.WriteCheckpoint(step=event.step, progress=training_progress.dump_progress(job)),
        )
    ]


# ---- decisions


def _decide_work(job: MasterState, now: float) -> Event | None:
    """The first state of the training, then evaluations and checkpoints."""
    queue = job.ledger.training
    if queue is None:
        return _decide_initializer(job)
    return _decide_evaluation(job, queue) or _decide_checkpoint(job, queue)


def _lease_takers(job: MasterState) -> list[Worker]:
    states = (WorkerState.MEMBER, WorkerState.FINISHED)
    return [worker for worker in job.ledger.membership.present_workers() if worker.state in states]


def _can_train(job: MasterState, queue: TrainingQueue) -> bool:
    """Whether training data may be handed out now."""
    if job.ledger.end_reason or isinstance(job.ledger.phase, StoppingPhase):
        return False
    return not _awaits_evaluation(job, queue) or bool(queue.shards.returned)


def _is_complete(job: MasterState, queue: TrainingQueue) -> bool:
    """Whether all data is trained, or a callback has ended the training."""
    return queue.shards.is_drained or bool(job.ledger.end_reason)


def _awaits_evaluation(job: MasterState, queue: TrainingQueue) -> bool:
    """Whether training waits for an evaluation: leased shards are finished, but no new ones are handed out."""
    ledger = job.ledger
    if not job.spec.evaluation.wait or not (ledger.plan and ledger.plan.validation_records):
        return False
    shards = queue.shards
    handed_out = min(shards.next_shard * shards.shard_records, shards.records)
    return bool(ledger.evaluations.open) or _is_evaluation_due(job, queue, handed_out)


def _is_idle(queue: TrainingQueue) -> bool:
    """Whether no shard is leased or waits to be leased again."""
    return not (queue.shards.leases or queue.shards.returned)


def _is_evaluation_due(job: MasterState, queue: TrainingQueue, records: int) -> bool:
    """Whether an evaluation is due between the newest one and this number of trained records."""
    ledger, schedule = job.ledger, job.spec.evaluation
    assert ledger.plan is not None
    step_interval = schedule.every_steps * queue.minibatch
    epoch_interval = (schedule.every_epochs or (0 if schedule.every_steps else 1)) * ledger.plan.records_per_epoch
    return any(
        interval and records // interval > ledger.evaluated_records // interval
        for interval in (step_interval, epoch_interval)
    )


def _decide_initializer(job: MasterState) -> Event | None:
    ledger = job.ledger
    if not ledger.fleet.is_ready or not isinstance(ledger.phase, PendingPhase | RunningPhase):
        return None
    if ledger.initializer is not None and ledger.membership.is_present(ledger.initializer):
        return None
    ready = [worker.id for worker in _lease_takers(job)]
    return InitializerChosen(ready[0]) if ready else None


def _decide_evaluation(job: MasterState, queue: TrainingQueue) -> Event | None:
    ledger, shards = job.ledger, queue.shards
    if ledger.plan is None or not ledger.plan.validation_records or ledger.evaluations.open:
        return None
    if ledger.end_reason or (_awaits_evaluation(job, queue) and not _is_idle(queue)):
        return None
    is_last = shards.is_drained and ledger.evaluations.newest != queue.batches_done
    is_due = _is_evaluation_due(job, queue, shards.done_records)
    return EvaluationDue(queue.batches_done, shards.done_records) if is_due or is_last else None


def _decide_checkpoint(job: MasterState, queue: TrainingQueue) -> Event | None:
    ledger, interval = job.ledger, job.spec.checkpoint.every_steps
    if not interval or not isinstance(ledger.phase, RunningPhase):
        return None
    if _awaits_evaluation(job, queue) and not _is_idle(queue):
        return None  # the checkpoint must have the state that is evaluated
    done = queue.batches_done
    if done // interval <= ledger.checkpointed_batches // interval or queue.shards.is_drained:
        return None
    members = [worker.id for worker in _lease_takers(job) if worker.state is WorkerState.MEMBER]
    return CheckpointRequested(members[0], done) if members else None


def _decide_end(job: MasterState, now: float) -> Event | None:
    ledger, phase = job.ledger, job.ledger.phase
    members = _lease_takers(job)
    if isinstance(phase, StoppingPhase):
        outcome: Outcome = Phase.FAILED if phase.failure_exit_code else Phase.STOPPED
        if not members:
            return JobEnded(outcome, f"{phase.reason}; no worker was left to write a checkpoint", False)
        if now >= phase.deadline:
            return JobEnded(outcome, f"{phase.reason}; workers did not end in time", True)
    finished = [worker for worker in members if worker.state is WorkerState.FINISHED]
    if not finished or len(finished) < len(members):
        return None
    is_complete = ledger.training is not None and _is_complete(job, ledger.training)
    if not ledger.is_exported:
        is_asked = ledger.export is not None and any(worker.id == ledger.export[0] for worker in finished)
        return None if is_asked else ExportRequested(finished[0].id, job.spec.output if is_complete else "")
    if isinstance(phase, StoppingPhase) and phase.failure_exit_code:
        return JobEnded(Phase.FAILED, phase.reason, False)
    if isinstance(phase, StoppingPhase) and not is_complete:
        return JobEnded(Phase.STOPPED, phase.reason, False)
    if not is_complete:
        return JobEnded(Phase.FAILED, "all workers ended before all records were trained", False)
    return JobEnded(Phase.SUCCEEDED, ledger.end_reason or ledger.finish_reason or "all records are trained", False)


class LeaseTraining(JobStrategy):
    """Workers take shards of the training data. They need not know each other, since the model is on the ps."""

    handlers = {
        InitializerChosen: on_initializer_chosen,
        EvaluationDue: on_evaluation_due,
        CheckpointRequested: on_checkpoint_requested,
    }
    decisions = (
        decisions.decide_worker_return,
        find_silent_worker,
        stalls.decide_lease_stall,
        decisions.decide_lease_expiry,
        _decide_work,
        _decide_end,
        fleet_decisions.next_decision,
        decisions.decide_launch,
        decisions.decide_overdue_leave,
    )

    # ---- handle

    def on_plan_reported(self, job: MasterState, event: DataPlanReported, now: float) -> Actions:
        """The first state exists: hand out the data from the position of its checkpoint, or from the start."""
        ledger = job.ledger
        if ledger.training is not None or event.worker != ledger.initializer:
            return []
        queue = TrainingQueue.create(job.spec, event.total_records, ledger.started_at)
        ledger.training = queue = training_progress.restore_queue(event.progress, queue) if event.progress else queue
        ledger.evaluated_records, ledger.checkpointed_batches = queue.shards.done_records, queue.batches_done
        ledger.loss_curve.complete_until = queue.batches_done
        per_epoch = event.records_per_epoch
        ledger.loss_curve.ended_epochs = queue.shards.done_records // per_epoch if per_epoch else 0
        if isinstance(ledger.phase, PendingPhase):
            ledger.phase = RunningPhase()
        return []

    def on_worker_finished(self, job: MasterState, event: WorkerFinished, now: float) -> Actions:
        return record_worker_finished(job, event, now)

    def on_worker_ready(self, job: MasterState, worker: Worker, now: float) -> None:
        worker.set_state(WorkerState.MEMBER, now)
        job.record_useful_work()

    def on_worker_joined(self, job: MasterState, worker: Worker, now: float) -> Actions:
        return decisions.log_lease_taker(job, worker, now)

    def on_heartbeat(self, job: MasterState, event: HeartbeatReceived, now: float) -> None:
        """Observe only the learning rate; the progress is known from the leases."""
        job.observed.learning_rate = event.learning_rate or job.observed.learning_rate

    def apply_report(self, job: MasterState, worker: Worker, report: LeaseReport, now: float) -> Actions:
        queue = job.ledger.training
        if queue is None or report.lease not in queue.shards.leases:
            return super().apply_report(job, worker, report, now)
        if report.finished and not report.failure:
            is_accepted = queue.finish(report.lease, worker.id)
        else:
            is_accepted = queue.shards.advance(report.lease, worker.id, report.done, now)
            if is_accepted and report.failure:
                queue.shards.fail(report.lease, report.failure, job.spec.timing.lease_attempts)
        job.ledger.records, job.ledger.step = queue.shards.done_records, queue.batches_done
        job.observed.record_progress(queue.batches_done, queue.shards.done_records, now)
        return _record_losses(job, queue, report, now) if is_accepted else []

    def take_leases(self, job: MasterState, worker: Worker, count: int, now: float) -> list[SourcedLease]:
        queue, granted = job.ledger.training, list[SourcedLease]()
        while queue is not None and len(granted) < count and _can_train(job, queue):
            lease = queue.take(worker.id, job.ledger.evaluations.next_lease, now)
            if lease is None:
                break
            job.ledger.evaluations.next_lease += 1
            granted.append((queue.shards.source, 0, lease))
        return granted

    def is_drained(self, job: MasterState) -> bool:
        """Whether all data is trained and the last evaluation is over."""
        ledger, queue = job.ledger, job.ledger.training
        if queue is None or ledger.evaluations.open:
            return False
        if ledger.end_reason:
            return not queue.shards.leases
        if not queue.shards.is_drained:
            return False
        is_evaluated = ledger.evaluations.newest == queue.batches_done
        return is_evaluated or ledger.plan is None or not ledger.plan.validation_records

    def end_training(self, job: MasterState, reason: str) -> bool:
        job.ledger.end_reason = job.ledger.end_reason or reason
        return True

    # ---- lost

    def on_worker_lost(self, job: MasterState, worker: Worker, now: float) -> Actions:
        if job.ledger.training is not None:
            job.ledger.training.shards.release(worker.id)
        return super().on_worker_lost(job, worker, now)

    def expire_lease(self, job: MasterState, lease_id: int, now: float) -> Actions:
        """Take back a lease that made no progress. Its shard goes to another worker, and its worker is replaced."""
        queue = job.ledger.training
        lease = queue.shards.leases.get(lease_id) if queue else None
        if queue is None or lease is None:
            return super().expire_lease(job, lease_id, now)
        failure = f"no progress for {job.spec.timing.lease_s:g} s"
        queue.shards.fail(lease_id, failure, job.spec.timing.lease_attempts)
        reason = f"{queue.shards.source}[{lease.start}:{lease.stop}] taken back: {failure}"
        return stalls.log_expired_lease(job, lease.worker, reason, now)

    def on_lease_overdue(self, job: MasterState, worker: Worker, reason: str, now: float) -> Actions:
        return stalls.replace_hung_worker(job, worker, reason, now)

    def open_queues(self, job: MasterState) -> Iterable[ShardQueue]:
        training = [job.ledger.training.shards] if job.ledger.training is not None else []
        return [*super().open_queues(job), *training]

    def state_holders(self, job: MasterState) -> list[Worker]:
        return _lease_takers(job)

    def has_state_to_save(self, job: MasterState) -> bool:
        return job.ledger.training is not None and job.ledger.training.batches_done > 0

    def on_failing(self, worker: WorkerId, reason: str) -> Actions:
        """All workers stop, as at any other end. One of them then writes the rows of the ps."""
        return [send_message(worker, stop=pb.StopTraining(reason=reason))]

    # ---- status

    def pending_messages(self, job: MasterState, worker: Worker, entered: int) -> Actions:
        ledger, actions = job.ledger, list[Action]()
        if isinstance(ledger.phase, StoppingPhase):
            actions.append(send_message(worker.id, stop=pb.StopTraining(reason=ledger.phase.reason)))
        actions += messages.pending_export(job, worker.id)
        if ledger.initializer == worker.id and ledger.training is None:
            actions.append(send_message(worker.id, initialize=pb.Initialize()))
        if ledger.checkpoint_writer == worker.id:
            request = pb.WriteCheckpoint(
                step=ledger.checkpointed_batches, progress=training_progress.dump_progress(job)
            )
            actions.append(send_message(worker.id, write_checkpoint=request))
        return actions

    def known_progress(self, job: MasterState) -> int:
        return job.ledger.training.shards.done_records if job.ledger.training is not None else job.ledger.step

    def done_records(self, job: MasterState) -> int:
        if job.ledger.training is None:
            return max(job.ledger.records, job.observed.records)
        return job.ledger.training.shards.done_records

    def progress_scalars(self, job: MasterState) -> dict[str, float]:
        """The learning rate. In all-reduce training it is recorded with the loss, as all workers have the same one."""
        return {"learning_rate": job.observed.learning_rate} if job.observed.learning_rate else {}

    def validate(self, job: MasterState) -> None:
        super().validate(job)
        if job.ledger.training is not None:
            job.ledger.training.validate()
