"""The documents that show a job in a cluster: the status of its ElasticJob, and Events. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from elasticdl.launcher.kubernetes.naming import Owner
from elasticdl.master.machine.actions import ROUTINE_KINDS, EventLogEntry
from elasticdl.rpc import elasticdl_pb2 as pb

_WARNING_KINDS = ("worker-lost", "ps-lost", "failed", "worker-delayed", "ps-delayed", "memory-raised")


def elastic_job_status(status: pb.JobStatus, result: dict[str, Any] | None) -> dict[str, Any]:
    """The status of an ElasticJob, as `kubectl get` and `describe` show it."""
    ready = sum(worker.state in ("member", "finished") for worker in status.workers)
    done, total = (status.records, status.total_records) if status.total_records else (status.step, status.total_steps)
    document: dict[str, Any] = {
        "phase": status.phase.capitalize(),
        "reason": status.reason,
        "workers": {
            "ready": ready,
            "desired": status.desired_workers,
            "min": status.min_workers,
            "max": status.max_workers,
        },
        "workersText": f"{ready}/{status.desired_workers} ({status.min_workers}-{status.max_workers})",
        "ps": {"ready": sum(ps.state == "serving" for ps in status.ps), "desired": status.desired_ps},
        "step": status.step,
        "totalSteps": status.total_steps,
        "records": status.records,
        "totalRecords": status.total_records,
        "progress": f"{100 * done // total} %" if total else "",
        "metric": _headline_metric(status),
        "startedAt": _timestamp(status.started_at),
        "selector": f"elasticdl.org/job={status.name},elasticdl.org/role=worker",
    }
    if result is not None:
        document["finishedAt"] = _timestamp(result["ended_at"])
    return document


def _headline_metric(status: pb.JobStatus) -> str:
    """The model's first metric by name, else the loss; always the same one."""
    names = sorted(status.metrics, key=lambda name: (name == "loss", name))
    return f"{names[0]} {status.metrics[names[0]]:.4g}" if names else ""


def _timestamp(instant: float) -> str | None:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if instant else None


def event_document(target: Owner, namespace: str, number: int, entry: EventLogEntry, count: int) -> dict[str, Any]:
    """The Event about `target` for an entry of the event log. Entries of a routine kind share one Event."""
    key = entry.kind if entry.kind in ROUTINE_KINDS else number
    timestamp = _timestamp(entry.at)
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
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": count,
    }
