"""Builds a policy's view of a job from its JobSpec, before it is submitted."""

from __future__ import annotations

from elasticdl.errors import SpecError
from elasticdl.scheduler.snapshot import JobInfo
from elasticdl.scheduler.snapshot_file import SnapshotWithUnits
from elasticdl.spec import JobSpec
from elasticdl.spec.cluster import parse_quantity

CPU = "cpu"


def worker_device_resource(spec: JobSpec) -> str:
    """What its workers are counted in: a device of a vendor if they ask for one, else cores."""
    return next((name for name in sorted(worker_requests(spec)) if "/" in name), CPU)


def job_info_from_spec(
    spec: JobSpec, cluster_snapshot: SnapshotWithUnits, created_at: float, priority: int = 0
) -> JobInfo:
    """A job as a policy sees it among those of `where`."""
    limits, cluster = spec.workers, spec.cluster
    if not cluster_snapshot.resource:
        devices, request, queue = limits.threads, {}, ""
    else:
        if cluster is None:
            raise SpecError(
                f"{spec.name}: the cluster is one of Kubernetes, and the job has no image there; give it cluster.image"
            )
        request, queue = worker_requests(spec), cluster.queue
        devices = -(-round(request.pop(cluster_snapshot.resource, 0.0) * 1000) // round(cluster_snapshot.unit * 1000))
        if not devices:
            raise SpecError(
                f"{spec.name}: its workers request no {cluster_snapshot.resource}, what is shared: a scheduler would leave "
                "it alone; write it under cluster.worker.requests, or name another resource with --device"
            )
    return JobInfo(
        spec.name,
        created_at,
        limits.min,
        limits.max,
        limits.wish,
        priority=priority,
        queue=queue,
        devices=devices,
        request=request,
    )


def worker_requests(spec: JobSpec) -> dict[str, float]:
    """Of each worker, by resource."""
    requests = spec.cluster.worker.requests if spec.cluster else {}
    return {name: parse_quantity(text) for name, text in requests.items()}
