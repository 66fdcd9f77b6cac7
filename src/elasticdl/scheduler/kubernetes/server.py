"""The scheduler's process on Kubernetes: once elected, decides when jobs, nodes or pods change, and periodically."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Collection, Sequence

from elasticdl.errors import ElasticDLError
from elasticdl.kube.election import Election
from elasticdl.kube.kinds import ELASTIC_JOB, NODE, POD, ResourceKind
from elasticdl.kube.watch import Document, ObjectChange, follow_changes
from elasticdl.launcher.kubernetes.naming import JOB_LABEL
from elasticdl.scheduler.interface import Policy
from elasticdl.scheduler.kubernetes.capacity import is_pod_alive
from elasticdl.scheduler.kubernetes.health import SchedulerHealth
from elasticdl.scheduler.kubernetes.namespace import NamespaceCluster
from elasticdl.scheduler.kubernetes.resource import parse_elastic_job
from elasticdl.scheduler.loop import SchedulingLoop

DEBOUNCE_S = 0.2  # events within this time are decided together
RETRY_S = 2.0  # after a failed call
POLICY_RETRY_S = 5.0  # after a failure of the policy, which the loop has logged
DEFAULT_INTERVAL_S = 10.0  # for policies without one, because pods of other users come and go unnoticed

POD_SELECTOR = "app.kubernetes.io/name=elasticdl"

_log = logging.getLogger(__name__)


class NamespaceSchedulerServer:
    """Decides until it is stopped. Jobs go on without it."""

    def __init__(
        self, policy: Policy, cluster: NamespaceCluster, interval_s: float | None, health: SchedulerHealth
    ) -> None:
        """`interval_s` overrides the policy's own; 0: decide on events only."""
        self.loop = SchedulingLoop(policy, cluster)
        self._cluster = cluster
        self._interval_s = interval_s if interval_s is not None else policy.interval_s or DEFAULT_INTERVAL_S
        self._decides_on_events = policy.decides_on_events or not self._interval_s
        self._health = health
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._last_error = ""  # of the last turn; "": it succeeded

    def stop(self) -> None:
        """May be called from a signal handler or another thread."""
        self._stopped.set()
        self._wake.set()

    def run(self) -> None:
        namespace = self._cluster.namespace
        watches = ((ELASTIC_JOB, namespace, "", has_job_changed), (NODE, "", "", has_node_changed))
        for watch in (*watches, (POD, namespace, POD_SELECTOR, self._has_pod_ended)):
            threading.Thread(target=self._watch, args=watch, name=f"watch-{watch[0].plural}", daemon=True).start()
        while not self._stopped.is_set():
            self._health.begin_turn()
            next_s = self._run_turn()
            self._health.end_turn(next_s, self._last_error or self.loop.policy_error)
            self._wake.wait(next_s)
            if self._wake.is_set():
                self._stopped.wait(DEBOUNCE_S)

    def _run_turn(self) -> float | None:
        """Decides once; returns the seconds until the next decision without news. None: forever."""
        self._wake.clear()
        try:
            self.loop.run_once(time.time())
        except ElasticDLError as exc:
            if str(exc) != self._last_error:  # logged once, however often it happens
                _log.warning("%s; trying again", exc)
            self._last_error = str(exc)
            return RETRY_S
        self._last_error = ""
        return POLICY_RETRY_S if self.loop.policy_error else self._interval_s or None

    def _watch(
        self, kind: ResourceKind, namespace: str, labels: str, is_relevant: Callable[[ObjectChange], bool]
    ) -> None:
        for changes in follow_changes(self._cluster.api, kind, namespace, labels, self._stopped):
            if self._decides_on_events and any(map(is_relevant, changes)):
                self._wake.set()

    def _has_pod_ended(self, change: ObjectChange) -> bool:
        return has_pod_ended(change, self._cluster.elastic_jobs)


def has_job_changed(change: ObjectChange) -> bool:
    return _job_key(change.before) != _job_key(change.after)


def has_node_changed(change: ObjectChange) -> bool:
    return _node_key(change.before) != _node_key(change.after)


def has_pod_ended(change: ObjectChange, jobs: Collection[str]) -> bool:
    """Returns whether a pod of none of `jobs` ended. (A job ends before its pods; the plan knows who shrinks.)"""
    before, after = change
    has_ended = before is not None and is_pod_alive(before) and (after is None or not is_pod_alive(after))
    return has_ended and before is not None and before["metadata"]["labels"].get(JOB_LABEL) not in jobs


def _job_key(document: Document | None) -> object:
    job = parse_elastic_job(document) if document is not None else None
    return None if job is None else job.change_key


def _node_key(document: Document | None) -> object:
    if document is None:
        return None
    spec, status = document.get("spec", {}), document.get("status", {})
    ready = [condition["status"] for condition in status.get("conditions", []) if condition["type"] == "Ready"]
    return spec.get("unschedulable"), spec.get("taints"), status.get("allocatable"), ready


LEASE_NAME = "elasticdl-scheduler"  # in the namespace of the jobs, for which one scheduler decides
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def lead_and_serve(
    make_server: Callable[[], NamespaceSchedulerServer],
    election: Election,
    health: SchedulerHealth,
    signals: Sequence[signal.Signals] = STOP_SIGNALS,
) -> None:
    """Makes a new server for each term, because an old one's knowledge of the namespace may be outdated."""
    loop, stop_requested = asyncio.get_running_loop(), asyncio.Event()
    for number in signals:
        loop.add_signal_handler(number, stop_requested.set)
    stopping = loop.create_task(stop_requested.wait())
    heartbeat = loop.create_task(health.heartbeat.run())
    while not stop_requested.is_set():
        health.set_standby(lambda: election.last_error)
        electing = loop.create_task(election.wait_until_leader())
        await asyncio.wait({electing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if electing.done():
            electing.result()
            await _serve_term(make_server(), election, stopping)
        else:
            electing.cancel()
    health.set_standby(lambda: election.last_error)
    stopping.cancel()
    # After a signal, another scheduler need not wait until the Lease expires, even if it was won too late to serve.
    await election.release()
    heartbeat.cancel()


async def _serve_term(server: NamespaceSchedulerServer, election: Election, stopping: asyncio.Task[bool]) -> None:
    """Returns when the Lease is lost or `stopping` is done, after the last write: only then may the Lease go."""
    serving = asyncio.create_task(asyncio.to_thread(server.run))
    leading = asyncio.create_task(election.wait_until_lost())
    await asyncio.wait({serving, leading, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.stop()
    await serving
    if leading.done():
        leading.result()
    leading.cancel()
