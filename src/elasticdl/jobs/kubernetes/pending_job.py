"""A job that was created as an ElasticJob and has no master yet: it is pending, suspended, or invalid."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from elasticdl.errors import MasterUnreachable, SpecError
from elasticdl.jobs import documents
from elasticdl.jobs.interface import KILL_REASON, JobBackend
from elasticdl.jobs.job_status import JobStatus
from elasticdl.kube.api import Api
from elasticdl.kube.errors import Forbidden, NotFound
from elasticdl.kube.kinds import ELASTIC_JOB
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.scheduler.kubernetes.annotations import SCHEDULING_REASON
from elasticdl.spec import JobSpec, WorkersSpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.load import resolve_elastic_job

if TYPE_CHECKING:
    from elasticdl.master.runtime.replay import StoredJournal
    from elasticdl.rpc.client import MasterClient

Document = dict[str, Any]

NO_OPERATOR = "no operator has processed it yet; `elasticdl doctor` shows whether one runs"


def list_elastic_jobs(api: Api, namespace: str) -> list[Document]:
    """The ElasticJobs of a namespace; none if the cluster has no such resource, or we may not list it."""
    try:
        return api.list(ELASTIC_JOB, namespace)[0]
    except (NotFound, Forbidden):
        return []


def read_elastic_job(api: Api, namespace: str, name: str) -> Document | None:
    try:
        return api.get(ELASTIC_JOB, name, namespace)
    except Forbidden:
        return None


def scheduling_reason(resource: Document) -> str:
    """Why the scheduler gives the job this number of workers; "" without a scheduler."""
    return str((resource["metadata"].get("annotations") or {}).get(SCHEDULING_REASON, ""))


def patch_replicas(api: Api, namespace: str, name: str, workers: int, ps: int) -> None:
    """Change the replicas in the spec of an ElasticJob, which every master of it follows; 0 leaves them unchanged."""
    change = {role: {"replicas": count} for role, count in (("workers", workers), ("ps", ps)) if count}
    api.patch(ELASTIC_JOB, name, {"spec": change}, namespace)


class PendingJob:
    def __init__(self, api: Api, namespace: str, resource: Document) -> None:
        self.name = str(resource["metadata"]["name"])
        self._api = api
        self._namespace = namespace
        self._resource = resource

    @property
    def context(self) -> str:
        return self._api.context

    @property
    def location(self) -> str:
        return f"{self._api.context or 'cluster'}/{self._namespace}"

    @property
    def created_at(self) -> float:
        return datetime.fromisoformat(self._resource["metadata"]["creationTimestamp"]).timestamp()

    @property
    def place(self) -> str:
        return f"in namespace {self._namespace} of context {self._api.context or 'this pod'}"

    def refresh(self) -> JobBackend:
        from elasticdl.jobs.kubernetes import cluster_job

        return cluster_job.find_cluster_job(self._api, self._namespace, self.name)

    def load_spec(self) -> JobSpec:
        return resolve_elastic_job(self._resource)

    def has_processes(self) -> bool:
        return False

    def status(self, timeout_s: float) -> pb.JobStatus:
        return self.quick_status()

    def quick_status(self) -> pb.JobStatus:
        spec, status = self._resource["spec"], self._resource.get("status") or {}
        workers = spec.get("workers") or {}
        desired = int(workers.get("replicas") or WorkersSpec().replicas)
        return pb.JobStatus(
            name=self.name,
            kind=str(spec.get("kind") or "training"),
            phase=str(status.get("phase") or "pending").lower(),
            reason=scheduling_reason(self._resource) or str(status.get("reason") or ("" if status else NO_OPERATOR)),
            desired_workers=desired,
            min_workers=int(workers.get("min") or 1),
            max_workers=int(workers.get("max") or desired),
            desired_ps=int((spec.get("ps") or {}).get("replicas") or 0),
            checkpoint_step=-1,
            started_at=self.created_at,
            now=time.time(),
        )

    def events(self) -> list[pb.EventStatus]:
        return []

    def status_document(self, status: JobStatus) -> Document:
        return documents.status_document(status, None)

    local_directory = None

    @contextmanager
    def connect_master(self) -> Iterator[MasterClient]:
        raise self._no_master_error()
        yield  # noqa: V201 - makes it a generator, as a context manager is

    def scale(self, workers: int, ps: int, batch_scale: int = 0) -> str:
        if batch_scale:
            raise self._no_master_error()
        patch_replicas(self._api, self._namespace, self.name, workers, ps)
        return f"{self.name}: takes effect when it begins; it has no master yet"

    def stop(self) -> str:
        with self.connect_master() as client:
            return client.stop(at_once=False, reason="elasticdl stop")

    def logged_replicas(self, role: str) -> list[str]:
        return []

    def logs(self, replica: str, follow: bool) -> Iterator[tuple[str, str]]:
        raise self._no_master_error()

    def kill(self, *, delete: bool, reason: str = KILL_REASON) -> str:
        existed = self._api.delete(ELASTIC_JOB, self.name, self._namespace)
        return f"{self.name}: deleted" if existed else f"{self.name}: was deleted already"

    def read_journal(self) -> tuple[StoredJournal, JobSpec]:
        raise SpecError(f"job {self.name!r} has not begun: there is no journal yet")

    @contextmanager
    def open_directory(self) -> Iterator[JobDirectory]:
        raise SpecError(f"job {self.name!r} has not begun: there is nothing to draw")
        yield  # noqa: V201 - makes it a generator, as a context manager is

    def _no_master_error(self) -> MasterUnreachable:
        status = self.quick_status()
        reason = f"{status.phase}: {status.reason}" if status.reason else status.phase
        return MasterUnreachable(
            f"job {self.name!r} has no master yet ({reason}); try again, "
            f"or delete the job with `elasticdl stop {self.name} --delete`"
        )
