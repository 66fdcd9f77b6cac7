"""The ElasticJobs of a namespace as the `Cluster` of the loop, read completely for every decision, written by patches.

Only accounts are remembered: allocations are in the resources, and what jobs really have are their pods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from google.protobuf.json_format import Parse, ParseError

from elasticdl.errors import TransientError
from elasticdl.kube.api import ALL_NAMESPACES, Api
from elasticdl.kube.errors import ApiError, NotFound
from elasticdl.kube.kinds import CONFIG_MAP, ELASTIC_JOB, NODE, POD
from elasticdl.launcher.kubernetes.naming import JOB_LABEL, ROLE_LABEL, STATUS
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.scheduler.accounts.entry import JobEntry
from elasticdl.scheduler.accounts.progress import parse_progress
from elasticdl.scheduler.accounts.rates import fit_rates
from elasticdl.scheduler.accounts.submission import JobSubmission
from elasticdl.scheduler.kubernetes import capacity
from elasticdl.scheduler.kubernetes.capacity import MILLI, ResourceAmounts
from elasticdl.scheduler.kubernetes.resource import ElasticJobView, parse_elastic_job
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot
from elasticdl.scheduler.snapshot_file import SnapshotWithUnits

START_COST_S = 30.0  # of pods, Python and the framework, for a job that has no workers

_log = logging.getLogger(__name__)


class NamespaceCluster:
    """ElasticJobs whose workers request `device_resource`; all others are ignored."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        device_resource: str,
        is_leader: Callable[[], bool],
        upcoming_requests: Sequence[ResourceAmounts] = (),
    ) -> None:
        """`is_leader` is asked before each write: whether no other scheduler may decide by now.

        `upcoming_requests` are requests of workers of other jobs, which must be a whole number of devices, too.
        """
        self.api = api
        self.namespace = namespace
        self.device_resource = device_resource
        self.elastic_jobs: dict[str, ElasticJobView] = {}  # in the last snapshot
        self.milli_per_device = capacity.MILLI  # thousandths of the resource per device
        self._is_leader = is_leader
        self._upcoming_requests = upcoming_requests
        self._entries: dict[str, JobEntry] = {}  # by uid
        self._ignored: set[str] = set()

    def snapshot(self, now: float) -> Snapshot:
        documents, _ = self.api.list(ELASTIC_JOB, self.namespace)
        self.elastic_jobs = {
            job.name: job for job in map(parse_elastic_job, documents) if job is not None and self._requests_device(job)
        }
        pods, _ = self.api.list(POD, ALL_NAMESPACES)
        own_pods = [pod for pod in pods if pod["metadata"].get("namespace") == self.namespace]
        other_pods = [pod for pod in pods if pod["metadata"].get("namespace") != self.namespace]
        requests = [job.worker_requests() for job in self.elastic_jobs.values()]
        milli_per_device = self.milli_per_device = capacity.milli_per_device(
            [*requests, *self._upcoming_requests], self.device_resource
        )
        # Workers of other namespaces are not ours, even if their job has the same name.
        unlabeled = [{**pod, "metadata": {**pod["metadata"], "labels": {}}} for pod in other_pods]
        nodes = capacity.available_nodes(
            self.api.list(NODE)[0],
            [*own_pods, *unlabeled],
            self.elastic_jobs.keys(),
            self.device_resource,
            milli_per_device,
        )
        workers_by_job, statuses = capacity.count_workers_by_node(own_pods), self._read_statuses()
        entries = {
            job.uid: self._update_entry(job, statuses.get(job.name), milli_per_device, now)
            for job in self.elastic_jobs.values()
        }
        self._entries = entries
        jobs = [
            self._to_job_info(job, entries[job.uid], workers_by_job.get(job.name, {}), nodes)
            for job in self.elastic_jobs.values()
        ]
        return Snapshot(now, nodes, tuple(jobs), is_shared=True)

    def apply(self, plan: AllocationPlan, now: float) -> None:
        """Shrinks jobs first; growing jobs wait for their devices as pending pods.

        If the API server was unavailable for a job, raises after the last one, so that it is tried again soon.
        """
        allocations = plan.allocations
        unavailable: TransientError | None = None

        def growth(name: str) -> int:
            return allocations[name].worker_count - (
                0 if self.elastic_jobs[name].is_suspended else self.elastic_jobs[name].replicas
            )

        for name in sorted(allocations, key=lambda name: (growth(name), name)):
            job, allocation = self.elastic_jobs[name], allocations[name]
            self._entries[job.uid].apply_allocation(allocation, now)
            patch = job.patch_for(allocation)
            if not patch:
                continue
            if not self._is_leader():
                _log.warning("%s: the remaining plan is not written: another scheduler may lead", self.namespace)
                return
            try:
                self._write(name, patch, allocation)
            except TransientError as exc:
                unavailable = exc
        if unavailable is not None:
            raise unavailable

    def _write(self, name: str, patch: dict[str, Any], allocation: Allocation) -> None:
        """Raises TransientError if the API server is unavailable; other failures wait for the next turn."""
        if "spec" in patch:
            count = allocation.worker_count
            workers = f"{count} worker{'s' * (count != 1)}" if count else "waits"
            _log.info("%s/%s: %s: %s", self.namespace, name, workers, allocation.reason)
        try:
            self.api.patch(ELASTIC_JOB, name, patch, self.namespace)
        except NotFound:
            pass  # it was deleted in the meantime
        except TransientError:
            raise
        except ApiError as exc:
            _log.warning("%s/%s: not written, the next turn tries again: %s", self.namespace, name, exc)

    def _requests_device(self, job: ElasticJobView) -> bool:
        if capacity.to_milli(job.worker_requests().get(self.device_resource, 0.0)) > 0:
            return True
        if job.uid not in self._ignored:
            self._ignored.add(job.uid)
            _log.warning("%s/%s is ignored: its workers request no %s", self.namespace, job.name, self.device_resource)
        return False

    def _read_statuses(self) -> Mapping[str, pb.JobStatus]:
        """Returns the last status that each master stored, by job."""
        config_maps, _ = self.api.list(CONFIG_MAP, self.namespace, f"{ROLE_LABEL}={STATUS}")
        statuses = {}
        for config_map in config_maps:
            name, text = (
                config_map["metadata"].get("labels", {}).get(JOB_LABEL, ""),
                (config_map.get("data") or {}).get("status.json"),
            )
            if name in self.elastic_jobs and text:
                try:
                    statuses[name] = Parse(text, pb.JobStatus(), ignore_unknown_fields=True)
                except ParseError as exc:
                    _log.warning("%s: its status cannot be parsed: %s", name, exc)
        return statuses

    def _update_entry(
        self, job: ElasticJobView, status: pb.JobStatus | None, milli_per_device: int, now: float
    ) -> JobEntry:
        submission = self._submission(job, milli_per_device)
        entry = self._entries.get(job.uid) or JobEntry(submission, charged_until=now)
        entry.submission = submission
        entry.charge_until(now)
        if status is not None and status.phase not in ("pending", "starting"):
            entry.progress = parse_progress(status).merged_with(entry.progress)
        return entry

    def _submission(self, job: ElasticJobView, unit: int) -> JobSubmission:
        """Leaves out the batch rule, because the scheduler cannot change a master's batch here."""
        workers, queue = job.spec.workers, job.spec.cluster.queue if job.spec.cluster else ""
        requested = min(max(job.requested, workers.min), workers.max)
        devices = capacity.to_milli(job.worker_requests()[self.device_resource]) // unit
        spec: dict[str, Any] = {"plan": {"logical_ranks": job.spec.plan.logical_ranks}}
        return JobSubmission(
            job.name, job.created_at, workers.min, workers.max, requested, devices, job.priority, queue, spec
        )

    def _to_job_info(
        self, job: ElasticJobView, entry: JobEntry, workers: Mapping[str, int], nodes: tuple[NodeInfo, ...]
    ) -> JobInfo:
        """The job has the workers it was allocated, or those on nodes if Kubernetes placed as many."""
        node_names = {node.name for node in nodes}
        workers_here = {name: count for name, count in workers.items() if name in node_names}
        is_first = entry.account.started_at is None
        if not job.is_suspended and workers_here and (sum(workers_here.values()) == entry.worker_count or is_first):
            count = sum(workers_here.values())
            entry.allocated = workers_here if job.spec.workers.min <= count <= job.spec.workers.max else {}
        entry.allocated = {name: count for name, count in entry.allocated.items() if name in node_names}
        other_requests = {
            name: quantity for name, quantity in job.worker_requests().items() if name != self.device_resource
        }
        info = entry.to_job_info(fit_rates)
        cost_s = info.change_cost_s if info.is_running else max(info.change_cost_s, START_COST_S)
        return replace(info, request=other_requests, change_cost_s=cost_s)


def snapshot_namespace(
    api: Api, namespace: str, device_resource: str, now: float, upcoming_requests: Sequence[ResourceAmounts] = ()
) -> SnapshotWithUnits:
    """`upcoming_requests` are requests of workers of jobs that do not exist yet."""
    cluster = NamespaceCluster(api, namespace, device_resource, lambda: False, upcoming_requests)
    snapshot = cluster.snapshot(now)
    jobs = tuple(_assume_started_at_submission(job, now) for job in snapshot.jobs)
    return SnapshotWithUnits(replace(snapshot, jobs=jobs), device_resource, cluster.milli_per_device / MILLI)


def _assume_started_at_submission(job: JobInfo, now: float) -> JobInfo:
    """When a job got its workers is not recorded, so it is assumed that it always had them."""
    if not job.workers:
        return job
    ran_s = max(now - job.submitted_at, 0.0)
    attained_s = ran_s * job.worker_count * job.devices
    started_at = job.submitted_at
    return replace(
        job,
        started_at=started_at,
        changed_at=started_at,
        executed_s=ran_s,
        attained_s=attained_s,
        max_workers_so_far=job.worker_count,
    )
