"""Handles leases (taken, advanced, finished, expired) and evaluations (opened, closed). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from elasticdl.errors import PoisonShard
from elasticdl.master.machine import stalls
from elasticdl.master.machine.actions import Action, RecordMetrics, ReplyToExchange
from elasticdl.master.machine.ending import fail_job
from elasticdl.master.machine.events import ExchangeReceived, LeaseExpired, LeaseReport, SnapshotHeld
from elasticdl.master.machine.membership import LeaseReply, Worker
from elasticdl.master.machine.phase import PendingPhase, RunningPhase
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.master.strategies.evaluation import OpenEvaluation
from elasticdl.master.strategies.shards import ShardQueue, SourcedLease
from elasticdl.rpc import elasticdl_pb2 as pb

Actions = list[Action]


def on_snapshot_held(job: MasterState, event: SnapshotHeld, now: float) -> Actions:
    ledger = job.ledger
    evaluations = ledger.evaluations
    ledger.step = max(ledger.step, event.step)
    if event.step in evaluations.results:
        # The step is repeated after the loss of all members: its result is the same.
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
        reply = worker.last_reply if event.request == worker.last_reply.request else None
        return [ReplyToExchange(event.worker, event.request, reply)]
    worker.hung_at = 0.0
    actions: Actions = []
    try:
        for report in event.reports:
            actions += job.strategy.apply_report(job, worker, report, now)
    except PoisonShard as exc:
        actions += fail_job(job, str(exc), 1, now)
        return [*actions, ReplyToExchange(event.worker, event.request, None)]
    worker.last_reply = _grant_leases(job, worker, event, now)
    if worker.last_reply.leases and isinstance(job.ledger.phase, PendingPhase):
        job.ledger.phase = RunningPhase()
    actions.append(ReplyToExchange(event.worker, event.request, worker.last_reply))
    return actions


def apply_report(job: MasterState, worker: Worker, report: LeaseReport, now: float) -> Actions:
    """Apply a report about a lease of an evaluation. PoisonShard."""
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
    granted: list[SourcedLease] = []
    is_drained, may_take = job.strategy.is_drained(job), job.strategy.can_take_leases(worker)
    for evaluation in evaluations.open.values():
        if not evaluation.is_open_to(worker.id, event.steps):
            continue
        is_drained = False
        while may_take and len(granted) < event.max_leases:
            lease = evaluation.queue.take(worker.id, evaluations.next_lease, now)
            if lease is None:
                break
            evaluations.next_lease += 1
            granted.append((evaluation.queue.source, evaluation.step, lease))
    if may_take:
        granted += job.strategy.take_leases(job, worker, event.max_leases - len(granted), now)
    return LeaseReply(event.request, tuple(granted), is_drained)


def _close_evaluation(job: MasterState, evaluation: OpenEvaluation, now: float) -> Actions:
    plan = job.ledger.plan
    watched_metric, lower_is_better = (plan.best_metric, plan.is_lower_better) if plan else ("", False)
    metrics = job.ledger.evaluations.finish_evaluation(evaluation, watched_metric, lower_is_better=lower_is_better)
    metrics_text = ", ".join(f"{name} {value:.6g}" for name, value in metrics.items())
    actions: Actions = [
        job.add_log_entry(now, "evaluation", reason=metrics_text or "done", step=evaluation.step, metrics=metrics)
    ]
    actions.append(RecordMetrics(evaluation.step, metrics))
    return actions + job.strategy.on_evaluation_finished(job, evaluation, metrics, now)


def announce_result(job: MasterState, step: int, metrics: Mapping[str, float]) -> Actions:
    """Send the result of an evaluation to all connected workers."""
    actions: Actions = []
    for worker in job.ledger.membership.present_workers():
        if worker.is_connected:
            worker.newest_result_sent = max(worker.newest_result_sent, step)
            actions.append(send_message(worker.id, evaluation=pb.EvaluationResult(step=step, metrics=metrics)))
    return actions


def on_lease_expired(job: MasterState, event: LeaseExpired, now: float) -> Actions:
    try:
        return job.strategy.expire_lease(job, event.lease, now)
    except PoisonShard as exc:
        return fail_job(job, str(exc), 1, now)


def expire_lease(job: MasterState, lease_id: int, now: float) -> Actions:
    """Take back a lease of an evaluation. PoisonShard."""
    for evaluation in job.ledger.evaluations.open.values():
        lease = evaluation.queue.leases.get(lease_id)
        if lease is None:
            continue
        failure = f"no progress for {job.spec.timing.lease_s:g} s"
        evaluation.queue.fail(lease_id, failure, job.spec.timing.lease_attempts)
        reason = f"{evaluation.queue.source}[{lease.start}:{lease.stop}] taken back: {failure}"
        return stalls.log_expired_lease(job, lease.worker, reason, now)
    return []
