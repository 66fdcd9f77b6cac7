"""The state of a job for users: a JobStatus message, and the content of result.json. Pure."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

from elasticdl.master.machine import resume
from elasticdl.master.machine.actions import EventLogEntry
from elasticdl.master.machine.membership import WorkerState
from elasticdl.master.machine.phase import FinalPhase
from elasticdl.master.machine.state import MasterState
from elasticdl.master.ps_fleet.fleet import PsReplica
from elasticdl.master.ps_fleet.ps_events import PsHeartbeatReceived
from elasticdl.rpc import elasticdl_pb2 as pb

# The last ones are in the status; the event log has all.
_MAX_ENDED_WORKERS = 20
MAX_BAD_RECORDS_SHOWN = 20
# After this time without a step the rate is 0.
_RATE_VALID_S = 5.0


def job_status(job: MasterState, now: float) -> pb.JobStatus:
    ledger, observed = job.ledger, job.observed
    phase, plan = ledger.phase, ledger.plan
    loss_step, loss = job.strategy.newest_loss(job)
    message = pb.JobStatus(
        name=job.spec.name,
        kind=job.spec.kind.value,
        phase=phase.name,
        reason=phase.reason,
        step=job.step,
        records=job.strategy.done_records(job),
        epoch=_done_epochs(job),
        epochs=job.strategy.epochs(job),
        records_per_epoch=job.records_per_epoch,
        loss=loss,
        loss_step=loss_step,
        records_per_s=observed.records_per_s if now - observed.progressed_at < _RATE_VALID_S else 0.0,
        round=ledger.rounds.current.id if ledger.rounds.current else 0,
        desired_workers=ledger.desired_workers,
        min_workers=job.spec.workers.min,
        max_workers=job.spec.workers.max,
        checkpoint_step=ledger.checkpoint[0] if ledger.checkpoint else -1,
        checkpoint_path=ledger.checkpoint[1] if ledger.checkpoint else "",
        output=ledger.output,
        started_at=ledger.started_at,
        now=now,
        exit_code=phase.exit_code if isinstance(phase, FinalPhase) else 0,
        workers=_worker_statuses(job),
        ps=ps_statuses(job, now),
        desired_ps=ledger.fleet.desired,
        strategy=str(job.spec.strategy),
        ps_mode=str(job.spec.ps.mode) if ledger.fleet.desired else "",
        events=[
            pb.EventStatus(**entry.to_document()) for entry in (*_older_notable_entries(job), *ledger.recent_entries)
        ],
        speeds=[pb.SpeedStatus(**speed._asdict()) for speed in ledger.speeds],
        gradient_square=observed.gradient_square,
        gradient_variance=observed.gradient_variance,
        progress=job.progress,
        global_batch=job.global_batch,
        batch_scale=observed.batch_scale,
        bad_records=len(ledger.bad_records),
        bad_record_names=_bad_record_names(job),
        batch_scales=[pb.BatchScale(**change._asdict()) for change in ledger.batch_changes],
    )
    if plan is not None:
        message.total_steps, message.total_records = plan.total_steps, plan.total_records
    if ledger.loss_curve.epoch is not None:
        message.epoch_loss.CopyFrom(pb.EpochLoss(**ledger.loss_curve.epoch._asdict()))
    newest = ledger.evaluations.newest
    if newest is not None:
        message.metrics.update(ledger.evaluations.results[newest])
        message.metrics_step = newest
    if ledger.evaluations.best is not None:
        message.best = "{} {:.6g} at step {}".format(*ledger.evaluations.best)
    for evaluation in ledger.evaluations.open.values():
        message.shards_done, message.shards = evaluation.queue.finished, evaluation.queue.shard_count
    job.strategy.complete_status(job, message)
    if not isinstance(phase, FinalPhase):
        resume.complete_status(job, message)
    return message


def _older_notable_entries(job: MasterState) -> list[EventLogEntry]:
    """Notable entries that are older than the recent ones."""
    first = job.ledger.entry_count - len(job.ledger.recent_entries) + 1
    return [entry for number, entry in job.ledger.notable_entries if number < first]


def _done_epochs(job: MasterState) -> int:
    """The number of complete epochs."""
    if not job.records_per_epoch:
        return 0
    return min(job.strategy.done_records(job) // job.records_per_epoch, job.strategy.epochs(job))


def _worker_statuses(job: MasterState) -> list[pb.WorkerStatus]:
    current = job.ledger.rounds.current or job.ledger.rounds.newest
    assignments = (
        {member.worker: (rank, member.logical_ranks) for rank, member in enumerate(current.members)} if current else {}
    )
    workers = list(job.ledger.membership.workers.values())
    ended = [worker for worker in workers if worker.state in (WorkerState.LEFT, WorkerState.LOST)]
    hidden = {worker.id for worker in ended[:-_MAX_ENDED_WORKERS]}
    statuses = []
    for worker in workers:
        if worker.id in hidden:
            continue
        is_member = worker.id in assignments and worker.state not in (WorkerState.LEFT, WorkerState.LOST)
        rank, ranks = assignments[worker.id] if is_member else (-1, 0)
        heartbeat = job.observed.heartbeats.get(worker.id)
        statuses.append(
            pb.WorkerStatus(
                id=worker.id,
                pid=worker.pid,
                state=worker.state.value,
                since=worker.since,
                rank=rank,
                logical_ranks=ranks,
                step=heartbeat.step if heartbeat else -1,
                step_s=heartbeat.step_s if heartbeat else 0.0,
                host=worker.host,
                reason=worker.stall_reason or worker.reason,
            )
        )
    return statuses


def job_result(job: MasterState, phase: FinalPhase) -> dict[str, Any]:
    """The content of result.json."""
    ledger = job.ledger
    newest = ledger.evaluations.newest
    loss_step, loss = job.strategy.newest_loss(job)
    return {
        "name": job.spec.name,
        "kind": job.spec.kind.value,
        "phase": phase.name,
        "reason": phase.reason,
        "exit_code": phase.exit_code,
        "step": job.step,
        "total_steps": ledger.plan.total_steps if ledger.plan else 0,
        "records": job.strategy.done_records(job),
        "total_records": ledger.plan.total_records if ledger.plan else 0,
        "records_per_epoch": job.records_per_epoch,
        "epoch": _done_epochs(job),
        "epochs": job.strategy.epochs(job),
        "loss": loss,
        "loss_step": loss_step,
        "epoch_loss": ledger.loss_curve.epoch._asdict() if ledger.loss_curve.epoch is not None else None,
        "metrics": ledger.evaluations.results[newest] if newest is not None else {},
        "metrics_step": newest,
        "best": "{} {:.6g} at step {}".format(*ledger.evaluations.best) if ledger.evaluations.best else "",
        "output": job.strategy.output(job),
        "checkpoint": ledger.checkpoint[1] if ledger.checkpoint else "",
        "checkpoint_step": ledger.checkpoint[0] if ledger.checkpoint else None,
        "started_at": ledger.started_at,
        "ended_at": phase.ended_at,
        "workers_joined": ledger.joined_count,
        "workers_failed": ledger.failure_budget.spent,
        "rounds": ledger.rounds.newest.id if ledger.rounds.newest else 0,
        "master_restarts": ledger.master_starts - 1,
        "speeds": [speed._asdict() for speed in ledger.speeds],
        "gradient_square": job.observed.gradient_square,
        "gradient_variance": job.observed.gradient_variance,
        "progress": job.progress,
        "global_batch": job.global_batch,
        "batch_scale": job.observed.batch_scale,
        "batch_scales": [change._asdict() for change in ledger.batch_changes],
        "bad_records": len(ledger.bad_records),
        "bad_record_names": _bad_record_names(job),
    }


def _bad_record_names(job: MasterState) -> list[str]:
    """The first bad records with their problems; the event log has all."""
    return [f"{record}: {problem}" for record, problem in islice(job.ledger.bad_records.items(), MAX_BAD_RECORDS_SHOWN)]


# The last ones are in the status; the event log has all.
_MAX_ENDED_PS = 20
# After this time without a heartbeat the rate is 0.
_PS_RATE_VALID_S = 5.0


def ps_statuses(job: MasterState, now: float) -> list[pb.PsStatus]:
    fleet = job.ledger.fleet
    slots = Counter(fleet.slot_owners)
    ended = [ps.id for ps in fleet.ps.values() if not ps.is_present]
    hidden = set(ended[:-_MAX_ENDED_PS])
    return [_ps_status(job, ps, slots[ps.id], now) for ps in fleet.ps.values() if ps.id not in hidden]


def _ps_status(job: MasterState, ps: PsReplica, slots: int, now: float) -> pb.PsStatus:
    message = pb.PsStatus(
        id=ps.id,
        pid=ps.pid,
        state=ps.state.value,
        since=ps.since,
        host=ps.host,
        address=ps.address,
        reason=ps.reason,
        slots=slots,
        backup=job.ledger.fleet.backups.get(ps.id, ""),
    )
    observed = job.observed.ps.get(ps.id)
    if observed is not None and observed.heartbeat is not None and ps.is_present:
        message.heartbeat.CopyFrom(_heartbeat_message(observed.heartbeat))
        message.requests_per_s = observed.requests_per_s if now - observed.heard_at < _PS_RATE_VALID_S else 0.0
    return message


def _heartbeat_message(heartbeat: PsHeartbeatReceived) -> pb.PsHeartbeat:
    values = heartbeat._asdict()
    del values["ps"]
    return pb.PsHeartbeat(**values)


def mean_staleness(histogram: tuple[int, ...]) -> float:
    """The mean staleness of all pushes so far; a bucket (0, 1, 2-3, 4-7 …) counts as its minimum."""
    pushes = sum(histogram)
    total = sum(count * (1 << bucket - 1) for bucket, count in enumerate(histogram) if bucket)
    return total / pushes if pushes else 0.0
