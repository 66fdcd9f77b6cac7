"""A job's status as plain JSON values: the stable form that scripts read."""

from __future__ import annotations

from typing import Any

from elasticdl.jobs import formatting
from elasticdl.rpc import elasticdl_pb2 as pb


def status_document(status: pb.JobStatus, directory: str | None) -> dict[str, Any]:
    """Every key is always there; what is not known is null, and so is the directory of a job on a cluster."""
    return {
        "name": status.name,
        "kind": status.kind,
        "phase": status.phase,
        "reason": status.reason,
        "exit_code": status.exit_code if status.phase in formatting.OVER_PHASES else None,
        "step": status.step,
        "total_steps": status.total_steps or None,
        "records": status.records,
        "total_records": status.total_records or None,
        "epoch": status.epoch,
        "epochs": status.epochs,
        "records_per_epoch": status.records_per_epoch or None,
        "loss": status.loss if status.loss_step > 0 else None,
        "loss_step": status.loss_step or None,
        "epoch_loss": _epoch_loss_document(status),
        "records_per_s": status.records_per_s,
        "metrics": dict(status.metrics),
        "metrics_step": status.metrics_step if status.metrics else None,
        "best": status.best or None,
        "shards_done": status.shards_done,
        "shards": status.shards,
        "round": status.round,
        "desired_workers": status.desired_workers,
        "min_workers": status.min_workers,
        "max_workers": status.max_workers,
        "started_at": status.started_at,
        "now": status.now,
        "checkpoint_step": status.checkpoint_step if status.checkpoint_step >= 0 else None,
        "checkpoint": status.checkpoint_path or None,
        "output": status.output or None,
        "directory": directory,
        "scheduling": None,  # but see `queued.document`
        "leftover_processes": [],  # of a job here, without launcher and master
        "workers": [worker_document(worker) for worker in status.workers],
        "strategy": status.strategy or None,
        "ps_mode": status.ps_mode or None,
        "desired_ps": status.desired_ps,
        "ps": [ps_document(ps) for ps in status.ps],
        "speeds": [speed_document(speed) for speed in status.speeds],
        "noise": _noise_document(status),
        "progress": status.progress if status.step > 0 else None,
        "global_batch": status.global_batch or None,
        "batch_scale": status.batch_scale or None,
        "max_batch_scale": status.max_batch_scale or None,
        "batch_scales": [
            {"step": scale.step if scale.step >= 0 else None, "scale": scale.scale} for scale in status.batch_scales
        ],
        "bad_records": status.bad_records,
        "bad_record_names": list(status.bad_record_names),
        "events": [event_document(event) for event in status.events],
    }


def speed_document(status: pb.SpeedStatus) -> dict[str, Any]:
    return {
        "nodes": status.nodes,
        "workers": status.workers,
        "local_batch": status.local_batch,
        "step_s": status.step_s,
        "compute_s": status.compute_s,
    }


def _epoch_loss_document(status: pb.JobStatus) -> dict[str, Any] | None:
    if not status.HasField("epoch_loss"):
        return None
    mean = status.epoch_loss
    return {"epoch": mean.epoch, "step": mean.step, "loss": mean.loss, "records": mean.records}


def _noise_document(status: pb.JobStatus) -> dict[str, float] | None:
    if not status.gradient_square and not status.gradient_variance:
        return None
    return {"square": status.gradient_square, "variance": status.gradient_variance}


def worker_document(status: pb.WorkerStatus) -> dict[str, Any]:
    is_member = status.rank >= 0
    return {
        "id": status.id,
        "pid": status.pid or None,
        "state": status.state,
        "since": status.since,
        "rank": status.rank if is_member else None,
        "logical_ranks": status.logical_ranks if is_member else 0,
        "step": status.step if status.step >= 0 else None,
        "step_s": status.step_s or None,
        "host": status.host,
        "reason": status.reason,
    }


def ps_document(status: pb.PsStatus) -> dict[str, Any]:
    beat = status.heartbeat
    return {
        "id": status.id,
        "pid": status.pid or None,
        "state": status.state,
        "since": status.since,
        "host": status.host,
        "address": status.address or None,
        "reason": status.reason,
        "slots": status.slots,
        "replica": status.replica or None,
        "map_version": beat.map_version,
        "rows": beat.rows,
        "memory_bytes": beat.bytes,
        "requests": beat.requests,
        "requests_per_s": status.requests_per_s,
        "pushes": beat.applied,
        "repeated_pushes": beat.repeated,
        "refused": beat.refused,
        "malformed": beat.malformed,
        "lock_wait_s": beat.lock_wait_s,
        "staleness": list(beat.staleness),
        "clock": beat.clock,
    }


def event_document(status: pb.EventStatus) -> dict[str, Any]:
    return {
        "at": status.at,
        "kind": status.kind,
        "worker": status.worker or None,
        "reason": status.reason,
        "round": status.round,
        "step": status.step,
        "cost_s": status.cost_s,
    }
