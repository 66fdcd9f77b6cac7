"""An ElasticJob as the scheduler sees it, and what it writes into one. Pure: documents in, changes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from elasticdl.errors import SpecError
from elasticdl.scheduler.cluster.annotations import PRIORITY, REASON, REQUESTED, SUSPENDED, US
from elasticdl.scheduler.plan import Allocation
from elasticdl.spec import JobSpec
from elasticdl.spec.cluster import amount
from elasticdl.spec.elastic_job import job_of

Document = Mapping[str, Any]

_OVER = ("Succeeded", "Stopped", "Failed")


@dataclass(frozen=True, slots=True)
class Resource:
    """One that wants workers."""

    name: str
    uid: str
    created_at: float
    spec: JobSpec
    wish: int  # of its resource, now
    is_suspended: bool
    annotations: Mapping[str, str]

    @property
    def requested(self) -> int:
        written = self.annotations.get(REQUESTED, "")
        return int(written) if written.isdigit() else self.wish

    @property
    def priority(self) -> int:
        return priority_of(self.annotations)

    def request(self) -> dict[str, float]:
        """Of each worker, by resource."""
        assert self.spec.cluster is not None
        return {name: amount(text) for name, text in self.spec.cluster.worker.requests.items()}

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes it worth to decide anew; not what the scheduler itself writes."""
        workers = self.spec.workers
        return self.uid, workers.min, workers.max, self.requested, self.priority

    def change(self, given: Allocation) -> dict[str, Any]:
        """What to write so that it has what it is given; {}: nothing."""
        count = given.count
        wanted: dict[str, str | None] = {REASON: given.reason}
        if count and count != self.wish and REQUESTED not in self.annotations:
            wanted[REQUESTED] = str(self.wish)
        if count:
            wanted[SUSPENDED] = None
        elif not self.is_suspended:
            wanted[SUSPENDED] = US
        differing = {name: text for name, text in wanted.items() if self.annotations.get(name) != text}
        spec: dict[str, Any] = {}
        if count and count != self.wish:
            spec["workers"] = {"wish": count}
        if self.is_suspended != (not count):
            spec["suspend"] = not count
        change: dict[str, Any] = {"metadata": {"annotations": differing}} if differing else {}
        return change | ({"spec": spec} if spec else {})


def priority_of(annotations: Mapping[str, str]) -> int:
    """What its owner wrote; what is no integer counts as 0."""
    try:
        return int(annotations.get(PRIORITY, "0"))
    except ValueError:
        return 0


def read(document: Document) -> Resource | None:
    """None: it is over, going, invalid, or suspended by somebody else."""
    metadata, status = document["metadata"], document.get("status") or {}
    annotations = metadata.get("annotations") or {}
    is_suspended = bool(document["spec"].get("suspend"))
    is_theirs = is_suspended and annotations.get(SUSPENDED) != US
    if status.get("phase") in _OVER or "deletionTimestamp" in metadata or is_theirs:
        return None
    try:
        spec = job_of(document)
    except SpecError:
        return None  # the operator says why
    created_at = datetime.fromisoformat(metadata["creationTimestamp"]).timestamp()
    return Resource(metadata["name"], metadata["uid"], created_at, spec, spec.workers.wish, is_suspended, annotations)
