"""The process: decide when ElasticJobs or nodes change or pods end, and every so often."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

from elasticdl.errors import ElasticDLError
from elasticdl.kube.kinds import ELASTIC_JOB, NODE, POD, Kind
from elasticdl.kube.watching import Change, Document, follow
from elasticdl.launcher.naming import JOB_LABEL
from elasticdl.scheduler.cluster.capacity import is_alive
from elasticdl.scheduler.cluster.health import Pulse
from elasticdl.scheduler.cluster.kubernetes import Namespace
from elasticdl.scheduler.cluster.resource import read
from elasticdl.scheduler.interface import Policy
from elasticdl.scheduler.loop import Loop

SETTLE_S = 0.2  # what comes together is decided together
RETRY_S = 2.0  # after a call that failed
TROUBLE_S = 5.0  # after a policy that failed; the loop has said why
INTERVAL_S = 10.0  # of policies that need none: pods of others come and go, and nobody tells us of them

OURS = "app.kubernetes.io/name=elasticdl"

_log = logging.getLogger(__name__)


class Server:
    """Until it is told to stop. Jobs go on without it."""

    def __init__(self, policy: Policy, cluster: Namespace, interval_s: float | None, pulse: Pulse) -> None:
        """`interval_s` overrules the policy's own; 0: only when something happened."""
        self.loop = Loop(policy, cluster)
        self._cluster = cluster
        self._interval_s = interval_s if interval_s is not None else policy.interval_s or INTERVAL_S
        self._asks_at_events = policy.asks_at_events or not self._interval_s
        self._pulse = pulse
        self._stopped = threading.Event()
        self._news = threading.Event()
        self._trouble = ""  # of the last turn, if it failed

    def stop(self) -> None:
        """From a signal handler or another thread."""
        self._stopped.set()
        self._news.set()

    def run(self) -> None:
        namespace = self._cluster.namespace
        watched = ((ELASTIC_JOB, namespace, "", is_news_of_job), (NODE, "", "", is_news_of_node))
        for one in (*watched, (POD, namespace, OURS, self._is_room)):
            threading.Thread(target=self._watch, args=one, name=f"watch-{one[0].plural}", daemon=True).start()
        while not self._stopped.is_set():
            self._pulse.begins_turn()
            next_s = self._turn()
            self._pulse.ends_turn(next_s, self._trouble or self.loop.trouble)
            self._news.wait(next_s)
            if self._news.is_set():
                self._stopped.wait(SETTLE_S)

    def _turn(self) -> float | None:
        """One decision; seconds until the next that needs no news. None: for ever."""
        self._news.clear()
        try:
            self.loop.turn(time.time())
        except ElasticDLError as exc:
            if str(exc) != self._trouble:  # said once, however often it is tried
                _log.warning("%s; trying again", exc)
            self._trouble = str(exc)
            return RETRY_S
        self._trouble = ""
        return TROUBLE_S if self.loop.trouble else self._interval_s or None

    def _watch(self, kind: Kind, namespace: str, labels: str, is_news: Callable[[Change], bool]) -> None:
        for changes in follow(self._cluster.api, kind, namespace, labels, self._stopped):
            if self._asks_at_events and any(map(is_news, changes)):
                self._news.set()

    def _is_room(self, change: Change) -> bool:
        return is_end_of_pod(change, self._cluster.resources)


def is_news_of_job(change: Change) -> bool:
    return _of_job(change.before) != _of_job(change.after)


def is_news_of_node(change: Change) -> bool:
    return _of_node(change.before) != _of_node(change.after)


def is_end_of_pod(change: Change, jobs: Collection[str]) -> bool:
    """Whether it was of none of `jobs`: a job is over before its pods are. Those who shrink were planned with."""
    before, after = change
    is_end = before is not None and is_alive(before) and (after is None or not is_alive(after))
    return is_end and before is not None and before["metadata"]["labels"].get(JOB_LABEL) not in jobs


def _of_job(document: Document | None) -> object:
    found = read(document) if document is not None else None
    return None if found is None else found.key


def _of_node(document: Document | None) -> object:
    if document is None:
        return None
    spec, status = document.get("spec", {}), document.get("status", {})
    ready = [one["status"] for one in status.get("conditions", []) if one["type"] == "Ready"]
    return spec.get("unschedulable"), spec.get("taints"), status.get("allocatable"), ready
