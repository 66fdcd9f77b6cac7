"""A job's status as plain JSON values: the stable form that scripts read."""

from __future__ import annotations

from typing import Any

from elasticdl.jobs.job_status import JobEvent, JobStatus, PsStatus, WorkerStatus


def status_document(status: JobStatus, directory: str | None) -> dict[str, Any]:
    """Has every key at all times. Unknown values are null, and so is the directory of a job on a cluster."""
    scaling = status.scaling
    return {
        "name": status.name,
        "kind": status.kind.value,
        "phase": status.phase.value,
        "reason": status.reason,
        "exit_code": status.exit_code,
        "step": status.step,
        "total_steps": status.total_steps,
        "records": status.records,
        "total_records": status.total_records,
        "epoch": status.epoch,
        "epochs": status.epochs,
        "records_per_epoch": status.records_per_epoch,
        "loss": status.loss,
        "loss_step": status.loss_step,
        "epoch_loss": status.epoch_loss._asdict() if status.epoch_loss else None,
        "records_per_s": status.records_per_s,
        "metrics": dict(status.metrics),
        "metrics_step": status.metrics_step,
        "best": status.best,
        "shards_done": status.shards_done,
        "shards": status.shards,
        "round": status.round,
        "desired_workers": status.desired_workers,
        "min_workers": status.min_workers,
        "max_workers": status.max_workers,
        "started_at": status.started_at,
        "now": status.updated_at,
        "checkpoint_step": status.checkpoint_step,
        "checkpoint": status.checkpoint,
        "output": status.output,
        "directory": directory,
        "scheduling": None,  # but see `queueing.scheduling_document`
        "leftover_processes": [],  # of a job here, without launcher and master
        "workers": [worker_document(worker) for worker in status.workers],
        "strategy": status.strategy,
        "ps_mode": status.ps_mode,
        "desired_ps": status.desired_ps,
        "ps": [ps_document(ps) for ps in status.ps],
        "speeds": [dict(speed) for speed in scaling.speeds],
        "noise": (
            None
            if scaling.gradient_square is None
            else {"square": scaling.gradient_square, "variance": scaling.gradient_variance}
        ),
        "progress": scaling.progress_steps,
        "global_batch": scaling.global_batch,
        "batch_scale": scaling.batch_scale,
        "max_batch_scale": scaling.max_batch_scale,
        "batch_scales": [{"step": step, "scale": scale} for step, scale in scaling.batch_scales],
        "bad_records": status.bad_records,
        "bad_record_names": list(status.bad_record_names),
        "events": [event_document(event) for event in status.events],
    }


def worker_document(worker: WorkerStatus) -> dict[str, Any]:
    return {
        "id": worker.name,
        "pid": worker.pid,
        "state": worker.state,
        "since": worker.since,
        "rank": worker.rank,
        "logical_ranks": worker.logical_ranks,
        "step": worker.step,
        "step_s": worker.step_s,
        "host": worker.host,
        "reason": worker.reason,
    }


def ps_document(ps: PsStatus) -> dict[str, Any]:
    return {
        "id": ps.name,
        "pid": ps.pid,
        "state": ps.state,
        "since": ps.since,
        "host": ps.host,
        "address": ps.address,
        "reason": ps.reason,
        "slots": ps.slots,
        "backup": ps.backup,
        "map_version": ps.map_version,
        "rows": ps.rows,
        "memory_bytes": ps.memory_bytes,
        "requests": ps.requests,
        "requests_per_s": ps.requests_per_s,
        "pushes": ps.pushes,
        "repeated_pushes": ps.repeated_pushes,
        "refused": ps.refused,
        "malformed": ps.malformed,
        "lock_wait_s": ps.lock_wait_s,
        "staleness": list(ps.staleness),
        "clock": ps.clock,
    }


def event_document(event: JobEvent) -> dict[str, Any]:
    return {
        "at": event.at,
        "kind": event.kind,
        "replica": event.replica,
        "reason": event.reason,
        "round": event.round,
        "step": event.step,
        "cost_s": event.cost_s,
    }
