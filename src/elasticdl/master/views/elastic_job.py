"""The documents in which a cluster shows a job: the status of its ElasticJob, and Events. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from elasticdl.launcher.kubernetes.naming import Owner
from elasticdl.master.machine.actions import ROUTINE_KINDS, EventLogEntry
from elasticdl.rpc import elasticdl_pb2 as pb

_WARNING_KINDS = ("worker-lost", "ps-lost", "failed", "worker-delayed", "ps-delayed", "memory-raised")


def elastic_job_status(seen: pb.JobStatus, result: dict[str, Any] | None) -> dict[str, Any]:
    """The status of an ElasticJob, as `kubectl get` and `describe` show it."""
    ready = sum(worker.state in ("member", "finished") for worker in seen.workers)
    done, total = (seen.records, seen.total_records) if seen.total_records else (seen.step, seen.total_steps)
    document: dict[str, Any] = {
        "phase": seen.phase.capitalize(),
        "reason": seen.reason,
        "workers": {
            "ready": ready,
            "desired": seen.desired_workers,
            "min": seen.min_workers,
            "max": seen.max_workers,
        },
        "workersText": f"{ready}/{seen.desired_workers} ({seen.min_workers}-{seen.max_workers})",
        "ps": {"ready": sum(one.state == "serving" for one in seen.ps), "desired": seen.desired_ps},
        "step": seen.step,
        "totalSteps": seen.total_steps,
        "records": seen.records,
        "totalRecords": seen.total_records,
        "progress": f"{100 * done // total} %" if total else "",
        "metric": _headline_metric(seen),
        "startedAt": _timestamp(seen.started_at),
        "selector": f"elasticdl.org/job={seen.name},elasticdl.org/role=worker",
    }
    if result is not None:
        document["finishedAt"] = _timestamp(result["ended_at"])
    return document


def _headline_metric(seen: pb.JobStatus) -> str:
    """One, and always the same: what the model measures itself by, else the loss."""
    names = sorted(seen.metrics, key=lambda name: (name == "loss", name))
    return f"{names[0]} {seen.metrics[names[0]]:.4g}" if names else ""


def _timestamp(at: float) -> str | None:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else None


def event_document(target: Owner, namespace: str, number: int, entry: EventLogEntry, count: int) -> dict[str, Any]:
    """The Event of `target` for entry `number` of the event log. Entries of a routine kind share one Event."""
    key = entry.kind if entry.kind in ROUTINE_KINDS else number
    at = _timestamp(entry.at)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{target.name}.{target.uid[:8]}.{key}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": target.api_version,
            "kind": target.kind,
            "name": target.name,
            "namespace": namespace,
            "uid": target.uid,
        },
        "reason": "".join(part.capitalize() for part in entry.kind.split("-")),
        "type": "Warning" if entry.kind in _WARNING_KINDS else "Normal",
        "source": {"component": "elasticdl-master"},
        "message": " ".join(word for word in (entry.replica, entry.reason) if word) or entry.kind,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": count,
    }
