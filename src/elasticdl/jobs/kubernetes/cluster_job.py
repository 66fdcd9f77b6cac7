"""A job of pods in a namespace of a cluster, known by the StatefulSet of its master."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.errors import ElasticDLError, JobNotFound, MasterUnreachable, SpecError
from elasticdl.jobs import documents, history
from elasticdl.jobs.interface import KILL_REASON, MASTER_TIMEOUT_S, JobBackend
from elasticdl.jobs.job_status import JobStatus
from elasticdl.jobs.kubernetes import pending_job, pod_logs
from elasticdl.jobs.kubernetes.job_objects import JobObjects
from elasticdl.jobs.kubernetes.pending_job import PendingJob
from elasticdl.jobs.kubernetes.pod_logs import PodLog
from elasticdl.jobs.kubernetes.port_forward import newest_pod, reach_master, read_spec
from elasticdl.kube.api import Api
from elasticdl.kube.errors import ApiUnavailable
from elasticdl.kube.kinds import CONFIG_MAP, ELASTIC_JOB, POD, STATEFUL_SET
from elasticdl.launcher.kubernetes.naming import JOB_LABEL, MASTER, ROLE_LABEL
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import Phase
from elasticdl.spec.directory import JobDirectory, write_private_file
from elasticdl.spelling import did_you_mean

if TYPE_CHECKING:
    from elasticdl.master.runtime.replay import StoredJournal
    from elasticdl.rpc.client import MasterClient
    from elasticdl.spec import JobSpec


JOB_SELECTOR = "app.kubernetes.io/name=elasticdl"
SUSPENDED = "suspended"


def find_cluster_job(api: Api, namespace: str, name: str) -> JobBackend:
    """The job called `name`; an error with the nearest name if there is none."""
    master_set = api.get(STATEFUL_SET, f"{name}-master", namespace)
    if master_set is not None and master_set["metadata"].get("labels", {}).get(JOB_LABEL) == name:
        resource = pending_job.read_elastic_job(api, namespace, name) if _elastic_job_name(master_set) else None
        scheduled = pending_job.scheduling_reason(resource) if resource else ""
        return ClusterJob(api, namespace, name, JobObjects.read(api, namespace, name), scheduled)
    if (resource := pending_job.read_elastic_job(api, namespace, name)) is not None:
        return PendingJob(api, namespace, resource)
    names = [job.name for job in list_cluster_jobs(api, namespace)]
    here = f"namespace {namespace} of context {api.context or 'this pod'}"
    raise JobNotFound(f"no job {name!r} in {here}" + did_you_mean(name, names, f"; there are {_newest_names(names)}"))


def list_cluster_jobs(api: Api, namespace: str) -> list[JobBackend]:
    """The jobs of a namespace, the newest last, by four calls however many they are."""
    master_sets, _ = api.list(STATEFUL_SET, namespace, f"{JOB_SELECTOR},{ROLE_LABEL}={MASTER}")
    held, _ = api.list(CONFIG_MAP, namespace, f"{JOB_SELECTOR},{ROLE_LABEL}=status")
    pods, _ = api.list(POD, namespace, f"{JOB_SELECTOR},{ROLE_LABEL}={MASTER}")
    written = {config_map["metadata"]["name"]: config_map.get("data") or {} for config_map in held}
    jobs: list[JobBackend] = []
    masters = {master["metadata"]["labels"][JOB_LABEL] for master in master_sets}
    resources = pending_job.list_elastic_jobs(api, namespace)
    scheduled = {resource["metadata"]["name"]: pending_job.scheduling_reason(resource) for resource in resources}
    without_master = [resource for resource in resources if resource["metadata"]["name"] not in masters]
    by_age = sorted(
        [*master_sets, *without_master],
        key=lambda resource: (resource["metadata"].get("creationTimestamp") or "", resource["metadata"]["name"]),
    )
    for master in by_age:
        if master["kind"] == ELASTIC_JOB.kind:
            jobs.append(PendingJob(api, namespace, master))
            continue
        name = master["metadata"]["labels"][JOB_LABEL]
        pod = newest_pod([pod for pod in pods if pod["metadata"]["labels"].get(JOB_LABEL) == name])
        standing = JobObjects(written.get(f"{name}-status", {}), master, pod)
        why = scheduled.get(_elastic_job_name(master) or "", "")
        jobs.append(ClusterJob(api, namespace, name, standing, why))
    return jobs


def _elastic_job_name(master: dict[str, Any]) -> str | None:
    """Of the ElasticJob it came from, if it did."""
    owners = master["metadata"].get("ownerReferences", [])
    return next((owner["name"] for owner in owners if owner["kind"] == ELASTIC_JOB.kind), None)


def _newest_names(names: list[str]) -> str:
    return ", ".join(names[-5:]) if names else "none"


class ClusterJob:
    def __init__(self, api: Api, namespace: str, name: str, objects: JobObjects, scheduled: str = "") -> None:
        self.name = name
        self.standing = objects  # when it was found
        self._api = api
        self._namespace = namespace
        self._scheduled = scheduled  # what the scheduler says of it

    @property
    def context(self) -> str:
        return self._api.context

    @property
    def location(self) -> str:
        return f"{self._api.context or 'cluster'}/{self._namespace}"

    @property
    def place(self) -> str:
        return f"in namespace {self._namespace} of context {self._api.context or 'this pod'}"

    def refresh(self) -> JobBackend:
        return find_cluster_job(self._api, self._namespace, self.name)

    def load_spec(self) -> JobSpec:
        return read_spec(self._api, self._namespace, self.name)

    def has_processes(self) -> bool:
        return False

    def status(self, timeout_s: float) -> pb.JobStatus:
        """From the master where one runs, else by the objects: no right to its Secret, or it is away this moment."""
        if self.standing.result is None and self.standing.is_master_running:
            from elasticdl.rpc.client import MasterClient

            try:
                with (
                    reach_master(self._api, self._namespace, self.name) as directory,
                    MasterClient.connect(directory, timeout_s) as client,
                ):
                    return self._with_scheduling_reason(client.status())
            except ElasticDLError:
                self.standing = JobObjects.read(self._api, self._namespace, self.name)
        return self.quick_status()

    def quick_status(self) -> pb.JobStatus:
        standing = self.standing
        status = standing.last_status
        if status is not None and not Phase(status.phase).is_over and standing.is_over:
            status.phase, status.reason, status.exit_code = standing.end
        if status is not None and standing.is_suspended:  # as it was before is not how it stands
            status.phase, status.reason = SUSPENDED, standing.unreachable_reason
            del status.workers[:], status.ps[:]
        if status is not None:
            return self._with_scheduling_reason(status)
        spec = read_spec(self._api, self._namespace, self.name)
        waits = SUSPENDED if standing.is_suspended else "pending"
        phase, reason, exit_code = standing.end if standing.is_over else (waits, standing.unreachable_reason, 0)
        status = history.requested_status(
            spec,
            phase=phase,
            reason=reason,
            started_at=standing.created_at,
            now=time.time(),
            exit_code=exit_code,
        )
        return self._with_scheduling_reason(status)

    def _with_scheduling_reason(self, status: pb.JobStatus) -> pb.JobStatus:
        """With the scheduler's reason, where the job waits or has fewer workers than it could use."""
        is_shrunk = not Phase(status.phase).is_over and status.desired_workers < status.max_workers
        if self._scheduled and (is_shrunk or status.phase == SUSPENDED):
            status.reason = self._scheduled
        return status

    def events(self) -> list[pb.EventStatus]:
        return [history.event_status(event) for event in history.parse_events(self.standing.event_log)]

    def status_document(self, status: JobStatus) -> dict[str, Any]:
        return documents.status_document(status, None)

    local_directory = None

    @contextmanager
    def connect_master(self) -> Iterator[MasterClient]:
        standing = self.standing
        if standing.is_over:
            raise SpecError(f"job {self.name!r} is over ({standing.end.phase}); see `elasticdl status {self.name}`")
        if not standing.is_master_running:
            reason = standing.unreachable_reason or "its pod starts"
            raise MasterUnreachable(
                f"job {self.name!r} has no running master: {reason}; try again, "
                f"or delete the job with `elasticdl stop {self.name} --delete`"
            )
        from elasticdl.rpc.client import MasterClient

        with (
            reach_master(self._api, self._namespace, self.name) as directory,
            MasterClient.connect(directory, MASTER_TIMEOUT_S) as client,
        ):
            yield client

    def scale(self, workers: int, ps: int, batch_scale: int = 0) -> str:
        """Asks the master, which answers at once; then its ElasticJob wishes the same, or the next master would not.

        Its batch is no wish of an ElasticJob: the master keeps it in its journal.
        """
        answer = f"{self.name}: wished for; it is suspended"
        if self._elastic_job_name is None or not self.standing.is_suspended or batch_scale:
            with self.connect_master() as client:
                answer = client.scale(workers, ps, batch_scale)
        if self._elastic_job_name is not None and (workers or ps):
            pending_job.patch_replicas(self._api, self._namespace, self._elastic_job_name, workers, ps)
        return answer

    def stop(self) -> str:
        with self.connect_master() as client:
            return client.stop(at_once=False, reason="elasticdl stop")

    def logged_replicas(self, role: str) -> list[str]:
        return pod_logs.list_replicas(self._api, self._namespace, self.name, role)

    def logs(self, replica: str, follow: bool) -> Iterator[tuple[str, str]]:
        if replica == "launcher":
            raise SpecError("--launcher: on Kubernetes the master launches the pods itself; use --master")
        return pod_logs.read_logs(self._api, self._namespace, self.name, replica, follow)

    def kill(self, *, delete: bool, reason: str = KILL_REASON) -> str:
        """The objects of a job end with their owner: the master's set, or the ElasticJob that owns it."""
        resource = self._elastic_job_name
        kind, name = (ELASTIC_JOB, resource) if resource else (STATEFUL_SET, f"{self.name}-master")
        was_there = self._api.delete(kind, name, self._namespace)
        done = "deleted" if was_there else "was deleted already"
        return f"{self.name}: {done}; its pods end, nothing is left but what it wrote to its volumes"

    @property
    def _elastic_job_name(self) -> str | None:
        return _elastic_job_name(self.standing.master_set or {"metadata": {}})

    def read_journal(self) -> tuple[StoredJournal, JobSpec]:
        from elasticdl.kube.kinds import CONFIG_MAP
        from elasticdl.master.kubernetes import journal_segments
        from elasticdl.master.runtime.replay import StoredJournal

        spec = read_spec(self._api, self._namespace, self.name)
        assert spec.cluster is not None
        if claim := spec.cluster.journal_claim:
            raise SpecError(
                f"the journal of {self.name} lies on the claim {claim} (--journal_claim), which this machine cannot "
                f"read; the master says in `elasticdl logs {self.name} --master` whether it can"
            )
        config_maps, _ = self._api.list(CONFIG_MAP, self._namespace, f"{journal_segments.JOURNAL_LABEL}={self.name}")
        if not config_maps:
            raise SpecError(f"job {self.name!r} has no journal: its master has not begun yet, or somebody deleted it")
        where = f"{len(config_maps)} ConfigMaps {self.name}-journal-… in namespace {self._namespace}"
        return StoredJournal(where, journal_segments.read_stream(config_maps), can_be_torn=False), spec

    @contextmanager
    def open_directory(self) -> Iterator[JobDirectory]:
        with tempfile.TemporaryDirectory(prefix="elasticdl-") as root:
            directory = JobDirectory(Path(root) / self.name)
            directory.root.mkdir(mode=0o700)
            write_private_file(directory.spec, read_spec(self._api, self._namespace, self.name).model_dump_json())
            self.standing.write_files(directory)
            yield directory


POLL_S = 0.2  # between two looks at a job that has no result yet


class WatchedClusterJob:
    def __init__(self, directory: JobDirectory, api: Api, namespace: str, name: str) -> None:
        self.directory = directory
        self._api = api
        self._namespace = namespace
        self._name = name
        self._standing: JobObjects | None = None
        self._problem = ""  # of the API server

    @property
    def place(self) -> str:
        return f"in namespace {self._namespace} of context {self._api.context or 'this pod'}"

    def has_failed_to_start(self) -> bool:
        return False  # what fails on a cluster is the master, which is started again

    def await_exit(self) -> None:
        """Pods end by themselves."""

    def is_alive(self) -> bool:
        try:
            self._standing = JobObjects.read(self._api, self._namespace, self._name)
        except ApiUnavailable as exc:  # the API server, too, comes back
            self._standing = None
            self._problem = f"the cluster does not answer: {exc}"
            time.sleep(POLL_S)
            return True
        self._standing.write_files(self.directory)
        if self._standing.result is None:
            time.sleep(POLL_S)
        return not self._standing.is_over and self._standing.result is None

    def has_started(self) -> bool:
        return self._standing is not None and '"master-restarted"' in self._standing.event_log

    def unreachable_reason(self) -> str:
        return self._standing.unreachable_reason if self._standing is not None else self._problem

    def logs_hint(self) -> str:
        return f"`elasticdl logs {self._name} --master`"

    def open_log(self, worker: str) -> PodLog:
        return PodLog(self._api, self._namespace, self._name, worker)

    def kill(self) -> str:
        standing = JobObjects.read(self._api, self._namespace, self._name)
        return ClusterJob(self._api, self._namespace, self._name, standing).kill(delete=True)

    local_directory = None

    def final_status(self) -> JobStatus:
        assert self._standing is not None, "a job that is over was looked at"
        job = ClusterJob(self._api, self._namespace, self._name, self._standing)
        return JobStatus.from_message(job.quick_status(), job.location)


@contextmanager
def watch_cluster_job(api: Api, namespace: str, name: str) -> Iterator[WatchedClusterJob]:
    with reach_master(api, namespace, name) as directory:
        yield WatchedClusterJob(directory, api, namespace, name)
