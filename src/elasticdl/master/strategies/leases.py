"""Leases, event by event: taken, advanced, finished, expired; evaluations opened and closed. Pure."""

from __future__ import annotations

from elasticdl.errors import PoisonShard
from elasticdl.master.machine import stalls
from elasticdl.master.machine.actions import Action, RecordMetrics, ReplyToExchange
from elasticdl.master.machine.ending import end_job, fail_job
from elasticdl.master.machine.events import DataPlanReported, ExchangeReceived, LeaseExpired, LeaseReport, SnapshotHeld
from elasticdl.master.machine.membership import LeaseReply, Worker, WorkerState
from elasticdl.master.machine.phase import PendingPhase, RunningPhase
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.master.strategies import lease_training
from elasticdl.master.strategies.evaluation import OpenEvaluation
from elasticdl.master.strategies.shards import ShardLease, ShardQueue
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobKind

Actions = list[Action]


def on_plan_reported(job: MasterState, event: DataPlanReported, now: float) -> Actions:
    """An evaluation or prediction job has its one piece of work once someone counted the records."""
    evaluations = job.ledger.evaluations
    if job.is_training or evaluations.open or evaluations.results:
        return []
    source = "validation" if job.spec.kind is JobKind.EVALUATION else "prediction"
    if event.total_records <= 0:
        uri = getattr(job.spec.data, source)
        return end_job(job, "failed", f"data.{source}: expected at least one record, {uri!r} has none", 2, now)
    queue = ShardQueue(source, event.total_records, job.spec.data.shard_records)
    step = event.total_steps  # of the weights: such a job takes none of its own
    evaluations.open[step] = OpenEvaluation(step, queue, holders=None)
    return []


def on_snapshot_held(job: MasterState, event: SnapshotHeld, now: float) -> Actions:
    ledger = job.ledger
    evaluations = ledger.evaluations
    ledger.step = max(ledger.step, event.step)
    if event.step in evaluations.results:
        # Trained again after a loss of all members: the same bits, hence the same result.
        result = pb.EvaluationResult(step=event.step, metrics=evaluations.results[event.step])
        return [send_message(event.worker, evaluation=result)]
    records = ledger.plan.validation_records if ledger.plan else 0
    if not records or not ledger.membership.is_present(event.worker):
        return []
    evaluation = evaluations.open.get(event.step)
    if evaluation is None:
        queue = ShardQueue("validation", records, job.spec.data.shard_records)
        evaluation = evaluations.open[event.step] = OpenEvaluation(event.step, queue, holders=[])
    assert evaluation.holders is not None
    if event.worker not in evaluation.holders:
        evaluation.holders.append(event.worker)
    return [send_message(event.worker, evaluate=pb.EvaluationStarted(step=event.step))]


def on_exchange_received(job: MasterState, event: ExchangeReceived, now: float) -> Actions:
    worker = job.ledger.membership.workers.get(event.worker)
    if worker is None or not worker.is_present or job.is_over:
        return [ReplyToExchange(event.worker, event.request, None)]
    if worker.last_reply is not None and event.request <= worker.last_reply.request:
        again = worker.last_reply if event.request == worker.last_reply.request else None
        return [ReplyToExchange(event.worker, event.request, again)]
    worker.hung_at = 0.0
    actions: Actions = []
    try:
        for report in event.reports:
            trained = lease_training.apply_report(job, worker, report, now)
            actions += _apply_report(job, worker, report, now) if trained is None else trained
    except PoisonShard as exc:
        actions += fail_job(job, str(exc), 1, now)
        return [*actions, ReplyToExchange(event.worker, event.request, None)]
    worker.last_reply = _grant_leases(job, worker, event, now)
    if worker.last_reply.leases and isinstance(job.ledger.phase, PendingPhase):
        job.ledger.phase = RunningPhase()
    actions.append(ReplyToExchange(event.worker, event.request, worker.last_reply))
    return actions


def _apply_report(job: MasterState, worker: Worker, report: LeaseReport, now: float) -> Actions:
    for evaluation in job.ledger.evaluations.open.values():
        queue = evaluation.queue
        if report.lease not in queue.leases:
            continue
        if report.finished and not report.failure:
            if queue.finish(report.lease, worker.id):
                evaluation.add_sums(report.sums)
                return _close_evaluation(job, evaluation, now) if queue.is_drained else []
        elif queue.advance(report.lease, worker.id, report.done, now):
            evaluation.add_sums(report.sums)
            if report.failure:
                queue.fail(report.lease, report.failure, job.spec.timing.lease_attempts)
        break
    return []


def _grant_leases(job: MasterState, worker: Worker, event: ExchangeReceived, now: float) -> LeaseReply:
    evaluations = job.ledger.evaluations
    taken: list[tuple[str, int, ShardLease]] = []
    training = job.ledger.training
    drained = lease_training.is_done(job) if job.trains_by_leases else bool(evaluations.results) or job.has_rounds
    is_member = worker.state in (WorkerState.MEMBER, WorkerState.FINISHED)
    may_take = is_member or (job.has_rounds and worker.is_active)
    for evaluation in evaluations.open.values():
        if not evaluation.is_open_to(worker.id, event.steps):
            continue
        drained = False
        while may_take and len(taken) < event.max_leases:
            lease = evaluation.queue.take(worker.id, evaluations.next_lease, now)
            if lease is None:
                break
            evaluations.next_lease += 1
            taken.append((evaluation.queue.source, evaluation.step, lease))
    while training is not None and may_take and len(taken) < event.max_leases and lease_training.can_train(job):
        lease = training.take(worker.id, evaluations.next_lease, now)
        if lease is None:
            break
        evaluations.next_lease += 1
        taken.append((training.shards.source, 0, lease))
    return LeaseReply(event.request, tuple(taken), drained)


def _close_evaluation(job: MasterState, evaluation: OpenEvaluation, now: float) -> Actions:
    plan = job.ledger.plan
    watched, is_least = (plan.best_metric, plan.is_lower_better) if plan else ("", False)
    metrics = job.ledger.evaluations.finish_evaluation(evaluation, watched, is_least=is_least)
    shown = ", ".join(f"{name} {value:.6g}" for name, value in metrics.items())
    actions: Actions = [
        job.add_log_entry(now, "evaluation", reason=shown or "done", step=evaluation.step, metrics=metrics)
    ]
    actions.append(RecordMetrics(evaluation.step, metrics))
    if job.is_training:
        result = pb.EvaluationResult(step=evaluation.step, metrics=metrics)
        for worker in job.ledger.membership.present_workers():
            if worker.is_connected:
                worker.newest_result_sent = max(worker.newest_result_sent, evaluation.step)
                actions.append(send_message(worker.id, evaluation=result))
    else:
        job.ledger.records = evaluation.queue.records
    return actions


def on_lease_expired(job: MasterState, event: LeaseExpired, now: float) -> Actions:
    try:
        if actions := lease_training.expire_lease(job, event.lease, now):
            return actions
    except PoisonShard as exc:
        return fail_job(job, str(exc), 1, now)
    for evaluation in job.ledger.evaluations.open.values():
        lease = evaluation.queue.leases.get(event.lease)
        if lease is None:
            continue
        why = f"no progress for {job.spec.timing.lease_s:g} s"
        try:
            evaluation.queue.fail(event.lease, why, job.spec.timing.lease_attempts)
        except PoisonShard as exc:
            return fail_job(job, str(exc), 1, now)
        reason = f"{evaluation.queue.source}[{lease.start}:{lease.stop}] taken back: {why}"
        return stalls.handle_expired_lease(job, lease.worker, reason, now)
    return []
