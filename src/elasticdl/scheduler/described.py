"""A job as a policy sees it, by its description. On Kubernetes priorities are high (1), low (-1), all others (0)."""

from __future__ import annotations

from elasticdl.errors import SpecError
from elasticdl.scheduler.snapshot import Job
from elasticdl.scheduler.snapshot_file import Pictured
from elasticdl.spec import JobSpec
from elasticdl.spec.cluster import amount

CPU, MEMORY = "cpu", "memory"
_PRIORITIES = {"high": 1, "low": -1}


def resource_of(spec: JobSpec) -> str:
    """What its workers are counted in: a device of a vendor if they ask for one, else cores."""
    requests = spec.cluster.worker.requests if spec.cluster else {}
    return next((name for name in sorted(requests) if "/" in name), CPU)


def job_of(spec: JobSpec, where: Pictured, *, created_at: float, workers: dict[str, int] | None = None) -> Job:
    """A job as a policy sees it among those of `where`."""
    limits, cluster = spec.workers, spec.cluster
    if not where.resource:
        devices, request, priority, queue = limits.threads, {}, 0, ""
    else:
        if cluster is None:
            raise SpecError(f"{spec.name}: the snapshot is one of Kubernetes; the job has no cluster.image")
        devices = max(-(-round(requested(spec, where.resource) * 1000) // round(where.unit * 1000)), 1)
        request = {MEMORY: amount(cluster.worker.requests.get(MEMORY, "0"))}
        priority, queue = _PRIORITIES.get(cluster.worker.priority, 0), cluster.queue
    has = dict(workers or {})
    return Job(
        spec.name,
        created_at,
        limits.min,
        limits.max,
        limits.wish,
        priority=priority,
        queue=queue,
        devices=devices,
        request=request,
        workers=has,
        started_at=created_at if has else None,
        changed_at=created_at if has else None,
        most_workers=sum(has.values()),
    )


def requested(spec: JobSpec, resource: str) -> float:
    """Of each worker; a job that asks for none of a device has 0."""
    return amount(spec.cluster.worker.requests.get(resource, "0")) if spec.cluster else 0.0
