"""Parses an ElasticJob for the scheduler, and computes the patch for an allocation. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from elasticdl.errors import SpecError
from elasticdl.scheduler.kubernetes.annotations import (
    PRIORITY,
    REQUESTED_WORKERS,
    SCHEDULER,
    SCHEDULING_REASON,
    SUSPENDED_BY,
)
from elasticdl.scheduler.plan import Allocation
from elasticdl.spec import JobSpec
from elasticdl.spec.cluster import parse_quantity
from elasticdl.spec.load import resolve_elastic_job

Document = Mapping[str, Any]

_ENDED_PHASES = ("Succeeded", "Stopped", "Failed")


@dataclass(frozen=True, slots=True)
class ElasticJobView:
    """An ElasticJob that wants workers."""

    name: str
    uid: str
    created_at: float
    spec: JobSpec
    replicas: int  # as the resource says now
    is_suspended: bool
    annotations: Mapping[str, str]

    @property
    def requested(self) -> int:
        written = self.annotations.get(REQUESTED_WORKERS, "")
        return int(written) if written.isdigit() else self.replicas

    @property
    def priority(self) -> int:
        return parse_priority(self.annotations)

    def worker_requests(self) -> dict[str, float]:
        """Returns the requests of one worker by resource."""
        assert self.spec.cluster is not None
        return {name: parse_quantity(text) for name, text in self.spec.cluster.worker.requests.items()}

    @property
    def change_key(self) -> tuple[Any, ...]:
        """What makes a new decision worthwhile when it changes; the scheduler's own writes are not part of it."""
        workers = self.spec.workers
        return self.uid, workers.min, workers.max, self.requested, self.priority

    def patch_for(self, allocation: Allocation) -> dict[str, Any]:
        """Returns the patch that carries out an allocation; {}: nothing changes."""
        count = allocation.worker_count
        annotations: dict[str, str | None] = {SCHEDULING_REASON: allocation.reason}
        if count and count != self.replicas and REQUESTED_WORKERS not in self.annotations:
            annotations[REQUESTED_WORKERS] = str(self.replicas)
        if count:
            annotations[SUSPENDED_BY] = None
        elif not self.is_suspended:
            annotations[SUSPENDED_BY] = SCHEDULER
        changed = {name: text for name, text in annotations.items() if self.annotations.get(name) != text}
        spec: dict[str, Any] = {}
        if count and count != self.replicas:
            spec["workers"] = {"replicas": count}
        if self.is_suspended != (not count):
            spec["suspend"] = not count
        patch: dict[str, Any] = {"metadata": {"annotations": changed}} if changed else {}
        return patch | ({"spec": spec} if spec else {})


def parse_priority(annotations: Mapping[str, str]) -> int:
    """Returns the user's priority; anything but an integer counts as 0."""
    try:
        return int(annotations.get(PRIORITY, "0"))
    except ValueError:
        return 0


def parse_elastic_job(document: Document) -> ElasticJobView | None:
    """Returns None for a job that ended, is being deleted, is invalid, or was suspended by the user."""
    metadata, status = document["metadata"], document.get("status") or {}
    annotations = metadata.get("annotations") or {}
    is_suspended = bool(document["spec"].get("suspend"))
    is_theirs = is_suspended and annotations.get(SUSPENDED_BY) != SCHEDULER
    if status.get("phase") in _ENDED_PHASES or "deletionTimestamp" in metadata or is_theirs:
        return None
    try:
        spec = resolve_elastic_job(document)
    except SpecError:
        return None  # the operator reports it
    created_at = datetime.fromisoformat(metadata["creationTimestamp"]).timestamp()
    return ElasticJobView(
        metadata["name"], metadata["uid"], created_at, spec, spec.workers.replicas, is_suspended, annotations
    )
