"""A job of pods in a namespace of a cluster, identified by the StatefulSet of its master."""

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
    """The job called `name`. Raises JobNotFound, with similar names, if there is none."""
    master_set = api.get(STATEFUL_SET, f"{name}-master", namespace)
    if master_set is not None and master_set["metadata"].get("labels", {}).get(JOB_LABEL) == name:
        resource = pending_job.read_elastic_job(api, namespace, name) if _elastic_job_name(master_set) else None
        reason = pending_job.scheduling_reason(resource) if resource else ""
        return ClusterJob(api, namespace, name, JobObjects.read(api, namespace, name), reason)
    if (resource := pending_job.read_elastic_job(api, namespace, name)) is not None:
        return PendingJob(api, namespace, resource)
    names = [job.name for job in list_cluster_jobs(api, namespace)]
    location = f"namespace {namespace} of context {api.context or 'this pod'}"
    hint = did_you_mean(name, names, f"; there are {_newest_names(names)}")
    raise JobNotFound(f"no job {name!r} in {location}{hint}")


def list_cluster_jobs(api: Api, namespace: str) -> list[JobBackend]:
    """The jobs of a namespace, the newest last. Makes four calls, however many jobs there are."""
    master_sets, _ = api.list(STATEFUL_SET, namespace, f"{JOB_SELECTOR},{ROLE_LABEL}={MASTER}")
    config_maps, _ = api.list(CONFIG_MAP, namespace, f"{JOB_SELECTOR},{ROLE_LABEL}=status")
    pods, _ = api.list(POD, namespace, f"{JOB_SELECTOR},{ROLE_LABEL}={MASTER}")
    status_files = {config_map["metadata"]["name"]: config_map.get("data") or {} for config_map in config_maps}
    jobs: list[JobBackend] = []
    masters = {master["metadata"]["labels"][JOB_LABEL] for master in master_sets}
    resources = pending_job.list_elastic_jobs(api, namespace)
    reasons = {resource["metadata"]["name"]: pending_job.scheduling_reason(resource) for resource in resources}
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
        objects = JobObjects(status_files.get(f"{name}-status", {}), master, pod)
        reason = reasons.get(_elastic_job_name(master) or "", "")
        jobs.append(ClusterJob(api, namespace, name, objects, reason))
    return jobs


def _elastic_job_name(master: dict[str, Any]) -> str | None:
    """The name of the ElasticJob that owns this StatefulSet; None if there is none."""
    owners = master["metadata"].get("ownerReferences", [])
    return next((owner["name"] for owner in owners if owner["kind"] == ELASTIC_JOB.kind), None)


def _newest_names(names: list[str]) -> str:
    return ", ".join(names[-5:]) if names else "none"


class ClusterJob:
    def __init__(self, api: Api, namespace: str, name: str, objects: JobObjects, scheduling_reason: str = "") -> None:
        self.name = name
        self.objects = objects  # as they were when the job was looked up
        self._api = api
        self._namespace = namespace
        self._scheduling_reason = scheduling_reason

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
        """The status from a running master; otherwise from the objects, e.g. without rights to Secrets."""
        if self.objects.result is None and self.objects.is_master_running:
            from elasticdl.rpc.client import MasterClient

            try:
                with (
                    reach_master(self._api, self._namespace, self.name) as directory,
                    MasterClient.connect(directory, timeout_s) as client,
                ):
                    return self._with_scheduling_reason(client.status())
            except ElasticDLError:
                self.objects = JobObjects.read(self._api, self._namespace, self.name)
        return self.quick_status()

    def quick_status(self) -> pb.JobStatus:
        objects = self.objects
        status = objects.last_status
        if status is not None and not Phase(status.phase).is_over and objects.is_over:
            status.phase, status.reason, status.exit_code = objects.end
        if status is not None and objects.is_suspended:  # the last status is from before the suspension
            status.phase, status.reason = SUSPENDED, objects.unreachable_reason
            del status.workers[:], status.ps[:]
        if status is not None:
            return self._with_scheduling_reason(status)
        spec = read_spec(self._api, self._namespace, self.name)
        waiting_phase = SUSPENDED if objects.is_suspended else "pending"
        phase, reason, exit_code = objects.end if objects.is_over else (waiting_phase, objects.unreachable_reason, 0)
        status = history.requested_status(
            spec,
            phase=phase,
            reason=reason,
            started_at=objects.created_at,
            now=time.time(),
            exit_code=exit_code,
        )
        return self._with_scheduling_reason(status)

    def _with_scheduling_reason(self, status: pb.JobStatus) -> pb.JobStatus:
        """Add the scheduler's reason if the job waits, or has fewer workers than it could use."""
        is_shrunk = not Phase(status.phase).is_over and status.desired_workers < status.max_workers
        if self._scheduling_reason and (is_shrunk or status.phase == SUSPENDED):
            status.reason = self._scheduling_reason
        return status

    def events(self) -> list[pb.EventStatus]:
        return [history.event_status(event) for event in history.parse_events(self.objects.event_log)]

    def status_document(self, status: JobStatus) -> dict[str, Any]:
        return documents.status_document(status, None)

    local_directory = None

    @contextmanager
    def connect_master(self) -> Iterator[MasterClient]:
        objects = self.objects
        if objects.is_over:
            raise SpecError(f"job {self.name!r} is over ({objects.end.phase}); see `elasticdl status {self.name}`")
        if not objects.is_master_running:
            reason = objects.unreachable_reason or "its pod is starting"
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
        """Scale by a call to the master, and in the spec of its ElasticJob, which the next master reads.

        The batch scale is not part of an ElasticJob: the master keeps it in its journal.
        """
        answer = f"{self.name}: takes effect when it is resumed; it is suspended"
        if self._elastic_job_name is None or not self.objects.is_suspended or batch_scale:
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
        """Delete the owner of all objects of the job: the master's StatefulSet, or the ElasticJob that owns it."""
        resource = self._elastic_job_name
        kind, name = (ELASTIC_JOB, resource) if resource else (STATEFUL_SET, f"{self.name}-master")
        existed = self._api.delete(kind, name, self._namespace)
        outcome = "deleted" if existed else "was deleted already"
        return f"{self.name}: {outcome}; its pods end, and only the files on its volumes are left"

    @property
    def _elastic_job_name(self) -> str | None:
        return _elastic_job_name(self.objects.master_set or {"metadata": {}})

    def read_journal(self) -> tuple[StoredJournal, JobSpec]:
        from elasticdl.kube.kinds import CONFIG_MAP
        from elasticdl.master.kubernetes import journal_segments
        from elasticdl.master.runtime.replay import StoredJournal

        spec = read_spec(self._api, self._namespace, self.name)
        assert spec.cluster is not None
        if claim := spec.cluster.journal_claim:
            raise SpecError(
                f"the journal of {self.name} is on the PersistentVolumeClaim {claim} (--journal_claim), which this "
                f"machine cannot read; `elasticdl logs {self.name} --master` shows whether the master can"
            )
        config_maps, _ = self._api.list(CONFIG_MAP, self._namespace, f"{journal_segments.JOURNAL_LABEL}={self.name}")
        if not config_maps:
            raise SpecError(f"job {self.name!r} has no journal: its master has not begun yet, or it was deleted")
        location = f"{len(config_maps)} ConfigMaps {self.name}-journal-… in namespace {self._namespace}"
        return StoredJournal(location, journal_segments.read_stream(config_maps), can_be_torn=False), spec

    @contextmanager
    def open_directory(self) -> Iterator[JobDirectory]:
        with tempfile.TemporaryDirectory(prefix="elasticdl-") as root:
            directory = JobDirectory(Path(root) / self.name)
            directory.root.mkdir(mode=0o700)
            write_private_file(directory.spec, read_spec(self._api, self._namespace, self.name).model_dump_json())
            self.objects.write_files(directory)
            yield directory


POLL_S = 0.2  # how often a job without a result is read


class WatchedClusterJob:
    def __init__(self, directory: JobDirectory, api: Api, namespace: str, name: str) -> None:
        self.directory = directory
        self._api = api
        self._namespace = namespace
        self._name = name
        self._objects: JobObjects | None = None
        self._api_problem = ""

    @property
    def place(self) -> str:
        return f"in namespace {self._namespace} of context {self._api.context or 'this pod'}"

    def has_failed_to_start(self) -> bool:
        return False  # what fails on a cluster is the master, which is started again

    def await_exit(self) -> None:
        """Pods end by themselves."""

    def is_alive(self) -> bool:
        try:
            self._objects = JobObjects.read(self._api, self._namespace, self._name)
        except ApiUnavailable as exc:  # a temporary failure of the API server does not end the job
            self._objects = None
            self._api_problem = f"the cluster does not answer: {exc}"
            time.sleep(POLL_S)
            return True
        self._objects.write_files(self.directory)
        if self._objects.result is None:
            time.sleep(POLL_S)
        return not self._objects.is_over and self._objects.result is None

    def has_started(self) -> bool:
        return self._objects is not None and '"master-restarted"' in self._objects.event_log

    def unreachable_reason(self) -> str:
        return self._objects.unreachable_reason if self._objects is not None else self._api_problem

    def logs_hint(self) -> str:
        return f"`elasticdl logs {self._name} --master`"

    def open_log(self, worker: str) -> PodLog:
        return PodLog(self._api, self._namespace, self._name, worker)

    def kill(self) -> str:
        objects = JobObjects.read(self._api, self._namespace, self._name)
        return ClusterJob(self._api, self._namespace, self._name, objects).kill(delete=True)

    local_directory = None

    def final_status(self) -> JobStatus:
        assert self._objects is not None, "call is_alive first"
        job = ClusterJob(self._api, self._namespace, self._name, self._objects)
        return JobStatus.from_message(job.quick_status(), job.location)


@contextmanager
def watch_cluster_job(api: Api, namespace: str, name: str) -> Iterator[WatchedClusterJob]:
    with reach_master(api, namespace, name) as directory:
        yield WatchedClusterJob(directory, api, namespace, name)
