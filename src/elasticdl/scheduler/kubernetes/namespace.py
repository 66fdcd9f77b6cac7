"""A namespace of ElasticJobs as the `Cluster` of the loop: read whole for every decision, written by patches.

Nothing is remembered but accounts: what a job is given stands in its resource, what it has are its pods.
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
from elasticdl.scheduler.plan import AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot
from elasticdl.scheduler.snapshot_file import SnapshotWithUnits

START_COST_S = 30.0  # of pods, Python and framework: what it costs a job to be given workers when it has none

_log = logging.getLogger(__name__)


class NamespaceCluster:
    """ElasticJobs whose workers take the resource `device`; all others are left alone."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        device_resource: str,
        leads: Callable[[], bool],
        coming: Sequence[ResourceAmounts] = (),
    ) -> None:
        """`leads` is asked before each write: whether nobody else can decide by now.

        `coming`: what workers of other jobs request, of which devices are to be a whole number, too.
        """
        self.api = api
        self.namespace = namespace
        self.device_resource = device_resource
        self.elastic_jobs: dict[str, ElasticJobView] = {}  # of the last snapshot
        self.unit = capacity.MILLI  # of it: thousandths of the resource that one device is
        self._leads = leads
        self._coming = coming
        self._entries: dict[str, JobEntry] = {}  # by uid
        self._left_alone: set[str] = set()

    def snapshot(self, now: float) -> Snapshot:
        documents, _ = self.api.list(ELASTIC_JOB, self.namespace)
        self.elastic_jobs = {
            one.name: one for one in map(parse_elastic_job, documents) if one is not None and self._takes_part(one)
        }
        pods, _ = self.api.list(POD, ALL_NAMESPACES)
        ours = [pod for pod in pods if pod["metadata"].get("namespace") == self.namespace]
        others = [pod for pod in pods if pod["metadata"].get("namespace") != self.namespace]
        wanted = [one.worker_requests() for one in self.elastic_jobs.values()]
        milli_per_device = self.unit = capacity.milli_per_device([*wanted, *self._coming], self.device_resource)
        # Workers of another namespace are others, whatever their job is called.
        theirs = [{**pod, "metadata": {**pod["metadata"], "labels": {}}} for pod in others]
        nodes = capacity.available_nodes(
            self.api.list(NODE)[0], [*ours, *theirs], self.elastic_jobs.keys(), self.device_resource, milli_per_device
        )
        placed, told = capacity.count_workers_by_node(ours), self._told()
        entries = {
            one.uid: self._entry(one, told.get(one.name), milli_per_device, now) for one in self.elastic_jobs.values()
        }
        self._entries = entries
        jobs = [self._job(one, entries[one.uid], placed.get(one.name, {}), nodes) for one in self.elastic_jobs.values()]
        return Snapshot(now, nodes, tuple(jobs), is_shared=True)

    def apply(self, plan: AllocationPlan, now: float) -> None:
        """Who gets less first: those who get more wait for their room as pending pods.

        Raises after the last where the API server was away for one: that is worth another try soon.
        """
        allocations = plan.allocations
        away: TransientError | None = None

        def growth(name: str) -> int:
            return allocations[name].worker_count - (
                0 if self.elastic_jobs[name].is_suspended else self.elastic_jobs[name].replicas
            )

        for name in sorted(allocations, key=lambda name: (growth(name), name)):
            resource, given = self.elastic_jobs[name], allocations[name]
            self._entries[resource.uid].apply_allocation(given, now)
            change = resource.patch_for(given)
            if not change:
                continue
            if not self._leads():
                _log.warning("%s: what is left of this plan is not written: another may lead", self.namespace)
                return
            if "spec" in change:
                words = (
                    f"{given.worker_count} worker{'s' * (given.worker_count != 1)}" if given.worker_count else "waits"
                )
                _log.info("%s/%s: %s: %s", self.namespace, name, words, given.reason)
            try:
                self.api.patch(ELASTIC_JOB, name, change, self.namespace)
            except NotFound:
                continue  # it was deleted meanwhile
            except TransientError as exc:
                away = exc
            except ApiError as exc:
                _log.warning("%s/%s: not written, it will be at the next turn: %s", self.namespace, name, exc)
        if away is not None:
            raise away

    def _takes_part(self, one: ElasticJobView) -> bool:
        if capacity.to_milli(one.worker_requests().get(self.device_resource, 0.0)) > 0:
            return True
        if one.uid not in self._left_alone:
            self._left_alone.add(one.uid)
            _log.warning(
                "%s/%s is left alone: its workers request no %s", self.namespace, one.name, self.device_resource
            )
        return False

    def _told(self) -> Mapping[str, pb.JobStatus]:
        """What masters wrote down last, by job."""
        held, _ = self.api.list(CONFIG_MAP, self.namespace, f"{ROLE_LABEL}={STATUS}")
        found = {}
        for one in held:
            name, text = (
                one["metadata"].get("labels", {}).get(JOB_LABEL, ""),
                (one.get("data") or {}).get("status.json"),
            )
            if name in self.elastic_jobs and text:
                try:
                    found[name] = Parse(text, pb.JobStatus(), ignore_unknown_fields=True)
                except ParseError as exc:
                    _log.warning("%s: its status is not understood: %s", name, exc)
        return found

    def _entry(self, one: ElasticJobView, told: pb.JobStatus | None, milli_per_device: int, now: float) -> JobEntry:
        submission = self._submission(one, milli_per_device)
        entry = self._entries.get(one.uid) or JobEntry(submission, charged_until=now)
        entry.submission = submission
        entry.charge_until(now)
        if told is not None and told.phase not in ("pending", "starting"):
            entry.progress = parse_progress(told).merged_with(entry.progress)
        return entry

    def _submission(self, one: ElasticJobView, unit: int) -> JobSubmission:
        """Without its rule for batches: nobody can ask a master for another from here."""
        workers, queue = one.spec.workers, one.spec.cluster.queue if one.spec.cluster else ""
        requested = min(max(one.requested, workers.min), workers.max)
        devices = capacity.to_milli(one.worker_requests()[self.device_resource]) // unit
        spec: dict[str, Any] = {"plan": {"logical_ranks": one.spec.plan.logical_ranks}}
        return JobSubmission(
            one.name, one.created_at, workers.min, workers.max, requested, devices, one.priority, queue, spec
        )

    def _job(
        self, one: ElasticJobView, entry: JobEntry, placed: Mapping[str, int], nodes: tuple[NodeInfo, ...]
    ) -> JobInfo:
        """Where it was given workers, or where Kubernetes really put as many."""
        known = {node.name for node in nodes}
        here = {name: count for name, count in placed.items() if name in known}
        is_first = entry.account.started_at is None
        if not one.is_suspended and here and (sum(here.values()) == entry.worker_count or is_first):
            count = sum(here.values())
            entry.allocated = here if one.spec.workers.min <= count <= one.spec.workers.max else {}
        entry.allocated = {name: count for name, count in entry.allocated.items() if name in known}
        others = {name: quantity for name, quantity in one.worker_requests().items() if name != self.device_resource}
        job = entry.to_job_info(fit_rates)
        cost_s = job.change_cost_s if job.is_running else max(job.change_cost_s, START_COST_S)
        return replace(job, request=others, change_cost_s=cost_s)


def snapshot_namespace(
    api: Api, namespace: str, device: str, now: float, coming: Sequence[ResourceAmounts] = ()
) -> SnapshotWithUnits:
    """`coming`: what workers of jobs request that are not there yet."""
    cluster = NamespaceCluster(api, namespace, device, lambda: False, coming)
    snapshot = cluster.snapshot(now)
    jobs = tuple(_assume_started_at_submission(job, now) for job in snapshot.jobs)
    return SnapshotWithUnits(replace(snapshot, jobs=jobs), device, cluster.unit / MILLI)


def _assume_started_at_submission(job: JobInfo, now: float) -> JobInfo:
    """Nobody wrote down when a job that has workers got them: taken as if it always had."""
    if not job.workers:
        return job
    ran_s = max(now - job.submitted_at, 0.0)
    attained_s = ran_s * job.worker_count * job.devices
    began = job.submitted_at
    return replace(
        job,
        started_at=began,
        changed_at=began,
        executed_s=ran_s,
        attained_s=attained_s,
        max_workers_so_far=job.worker_count,
    )
