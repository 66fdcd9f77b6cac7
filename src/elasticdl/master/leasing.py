"""Leases, event by event: taken, advanced, finished, expired; evaluations opened and closed. Pure."""

from __future__ import annotations

from elasticdl.errors import PoisonShard
from elasticdl.master import lease_training, stalls
from elasticdl.master.actions import Action, Reply, ShowMetrics
from elasticdl.master.ending import end, fail
from elasticdl.master.evaluation import Evaluation
from elasticdl.master.events import Exchanged, LeaseExpired, LeaseReport, PlanFound, SnapshotHeld
from elasticdl.master.job import Job, send
from elasticdl.master.membership import Answer, Worker, WorkerState
from elasticdl.master.phase import Pending, Running
from elasticdl.master.shards import Lease, ShardQueue
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobKind

Actions = list[Action]


def opened(job: Job, event: PlanFound, now: float) -> Actions:
    """An evaluation or prediction job has its one piece of work once someone counted the records."""
    evaluations = job.ledger.evaluations
    if job.trains or evaluations.open or evaluations.results:
        return []
    source = "validation" if job.spec.kind is JobKind.EVALUATION else "prediction"
    if event.total_records <= 0:
        uri = getattr(job.spec.data, source)
        return end(job, "failed", f"data.{source}: expected at least one record, {uri!r} has none", 2, now)
    queue = ShardQueue(source, event.total_records, job.spec.data.shard_records)
    step = event.total_steps  # of the weights: such a job takes none of its own
    evaluations.open[step] = Evaluation(step, queue, holders=None)
    return []


def snapshot_held(job: Job, event: SnapshotHeld, now: float) -> Actions:
    ledger = job.ledger
    evaluations = ledger.evaluations
    ledger.step = max(ledger.step, event.step)
    if event.step in evaluations.results:
        # Trained again after a loss of all members: the same bits, hence the same result.
        result = pb.EvaluationResult(step=event.step, metrics=evaluations.results[event.step])
        return [send(event.worker, evaluation=result)]
    records = ledger.plan.validation_records if ledger.plan else 0
    if not records or not ledger.membership.is_here(event.worker):
        return []
    evaluation = evaluations.open.get(event.step)
    if evaluation is None:
        queue = ShardQueue("validation", records, job.spec.data.shard_records)
        evaluation = evaluations.open[event.step] = Evaluation(event.step, queue, holders=[])
    assert evaluation.holders is not None
    if event.worker not in evaluation.holders:
        evaluation.holders.append(event.worker)
    return [send(event.worker, evaluate=pb.EvaluationStarted(step=event.step))]


def exchanged(job: Job, event: Exchanged, now: float) -> Actions:
    worker = job.ledger.membership.workers.get(event.worker)
    if worker is None or not worker.is_here or job.is_over:
        return [Reply(event.worker, event.request, None)]
    if worker.answer is not None and event.request <= worker.answer.request:
        again = worker.answer if event.request == worker.answer.request else None
        return [Reply(event.worker, event.request, again)]
    worker.hung_at = 0.0
    actions: Actions = []
    try:
        for report in event.reports:
            trained = lease_training.report(job, worker, report, now)
            actions += _report(job, worker, report, now) if trained is None else trained
    except PoisonShard as exc:
        actions += fail(job, str(exc), 1, now)
        return [*actions, Reply(event.worker, event.request, None)]
    worker.answer = _take(job, worker, event, now)
    if worker.answer.leases and isinstance(job.ledger.phase, Pending):
        job.ledger.phase = Running()
    actions.append(Reply(event.worker, event.request, worker.answer))
    return actions


def _report(job: Job, worker: Worker, report: LeaseReport, now: float) -> Actions:
    for evaluation in job.ledger.evaluations.open.values():
        queue = evaluation.queue
        if report.lease not in queue.leases:
            continue
        if report.finished and not report.failure:
            if queue.finish(report.lease, worker.id):
                evaluation.count(report.sums)
                return _close(job, evaluation, now) if queue.is_drained else []
        elif queue.advance(report.lease, worker.id, report.done, now):
            evaluation.count(report.sums)
            if report.failure:
                queue.fail(report.lease, report.failure, job.spec.timing.lease_attempts)
        break
    return []


def _take(job: Job, worker: Worker, event: Exchanged, now: float) -> Answer:
    evaluations = job.ledger.evaluations
    taken: list[tuple[str, int, Lease]] = []
    training = job.ledger.training
    drained = lease_training.is_done(job) if job.trains_by_leases else bool(evaluations.results) or job.has_rounds
    is_member = worker.state in (WorkerState.MEMBER, WorkerState.FINISHED)
    may_take = is_member or (job.has_rounds and worker.is_active)
    for evaluation in evaluations.open.values():
        if not evaluation.is_open_to(worker.id, event.steps):
            continue
        drained = False
        while may_take and len(taken) < event.want:
            lease = evaluation.queue.take(worker.id, evaluations.next_lease, now)
            if lease is None:
                break
            evaluations.next_lease += 1
            taken.append((evaluation.queue.source, evaluation.step, lease))
    while training is not None and may_take and len(taken) < event.want and lease_training.may_train(job):
        lease = training.take(worker.id, evaluations.next_lease, now)
        if lease is None:
            break
        evaluations.next_lease += 1
        taken.append((training.shards.source, 0, lease))
    return Answer(event.request, tuple(taken), drained)


def _close(job: Job, evaluation: Evaluation, now: float) -> Actions:
    plan = job.ledger.plan
    watched, is_least = (plan.best_metric, plan.best_is_least) if plan else ("", False)
    metrics = job.ledger.evaluations.close(evaluation, watched, is_least=is_least)
    shown = ", ".join(f"{name} {value:.6g}" for name, value in metrics.items())
    actions: Actions = [job.note(now, "evaluation", reason=shown or "done", step=evaluation.step)]
    actions.append(ShowMetrics(evaluation.step, metrics))
    if job.trains:
        result = pb.EvaluationResult(step=evaluation.step, metrics=metrics)
        for worker in job.ledger.membership.here():
            if worker.connected:
                worker.told = max(worker.told, evaluation.step)
                actions.append(send(worker.id, evaluation=result))
    else:
        job.ledger.records = evaluation.queue.records
    return actions


def expired(job: Job, event: LeaseExpired, now: float) -> Actions:
    try:
        if actions := lease_training.overdue(job, event.lease, now):
            return actions
    except PoisonShard as exc:
        return fail(job, str(exc), 1, now)
    for evaluation in job.ledger.evaluations.open.values():
        lease = evaluation.queue.leases.get(event.lease)
        if lease is None:
            continue
        why = f"no progress for {job.spec.timing.lease_s:g} s"
        try:
            evaluation.queue.fail(event.lease, why, job.spec.timing.lease_attempts)
        except PoisonShard as exc:
            return fail(job, str(exc), 1, now)
        reason = f"{evaluation.queue.source}[{lease.start}:{lease.stop}] taken back: {why}"
        return stalls.lease_expired(job, lease.worker, reason, now)
    return []
