"""Builds a policy's view of a job from its JobSpec, before it is submitted."""

from __future__ import annotations

from elasticdl.errors import SpecError
from elasticdl.scheduler.snapshot import JobInfo
from elasticdl.scheduler.snapshot_file import SnapshotWithUnits
from elasticdl.spec import JobSpec
from elasticdl.spec.cluster import parse_quantity

CPU = "cpu"


def worker_device_resource(spec: JobSpec) -> str:
    """Returns the resource its workers are counted in: a vendor's device if they request one, else cores."""
    return next((name for name in sorted(worker_requests(spec)) if "/" in name), CPU)


def job_info_from_spec(
    spec: JobSpec, cluster_snapshot: SnapshotWithUnits, created_at: float, priority: int = 0
) -> JobInfo:
    """Returns a job as a policy sees it among those of a snapshot."""
    limits, cluster = spec.workers, spec.cluster
    if not cluster_snapshot.resource:
        devices, request, queue = limits.threads, {}, ""
    else:
        if cluster is None:
            raise SpecError(
                f"{spec.name}: the snapshot is of a Kubernetes cluster, and the job has no image; set cluster.image"
            )
        request, queue = worker_requests(spec), cluster.queue
        devices = -(-round(request.pop(cluster_snapshot.resource, 0.0) * 1000) // round(cluster_snapshot.unit * 1000))
        if not devices:
            raise SpecError(
                f"{spec.name}: its workers request no {cluster_snapshot.resource}, the resource that is shared, so the "
                "scheduler would ignore the job; add it to cluster.worker.requests, or name another one with --device"
            )
    return JobInfo(
        spec.name,
        created_at,
        limits.min,
        limits.max,
        limits.replicas,
        priority=priority,
        queue=queue,
        devices=devices,
        request=request,
    )


def worker_requests(spec: JobSpec) -> dict[str, float]:
    """Returns the requests of one worker by resource."""
    requests = spec.cluster.worker.requests if spec.cluster else {}
    return {name: parse_quantity(text) for name, text in requests.items()}
