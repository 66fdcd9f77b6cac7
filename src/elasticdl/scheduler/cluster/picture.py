"""A namespace as its scheduler would see it now, for somebody who only looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from elasticdl.kube.api import Api
from elasticdl.scheduler.cluster.capacity import MILLI, Amounts
from elasticdl.scheduler.cluster.kubernetes import Namespace
from elasticdl.scheduler.snapshot import Job
from elasticdl.scheduler.snapshot_file import Pictured


def picture(api: Api, namespace: str, device: str, now: float, coming: Sequence[Amounts] = ()) -> Pictured:
    """`coming`: what workers of jobs request that are not there yet."""
    cluster = Namespace(api, namespace, device, lambda: False, coming)
    snapshot = cluster.snapshot(now)
    jobs = tuple(_begun(job, now) for job in snapshot.jobs)
    return Pictured(replace(snapshot, jobs=jobs), device, cluster.unit / MILLI)


def _begun(job: Job, now: float) -> Job:
    """Nobody wrote down when a job that has workers got them: taken as if it always had."""
    if not job.workers:
        return job
    ran_s = max(now - job.submitted_at, 0.0)
    attained_s = ran_s * job.count * job.devices
    began = job.submitted_at
    return replace(
        job, started_at=began, changed_at=began, executed_s=ran_s, attained_s=attained_s, most_workers=job.count
    )
