"""The process: decide when ElasticJobs or nodes change, and every so often."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from elasticdl.errors import ElasticDLError
from elasticdl.kube.kinds import ELASTIC_JOB, NODE, Kind
from elasticdl.kube.watching import follow
from elasticdl.scheduler.cluster.kubernetes import Namespace
from elasticdl.scheduler.cluster.resource import read
from elasticdl.scheduler.interface import Policy
from elasticdl.scheduler.loop import Loop

SETTLE_S = 0.2  # what comes together is decided together
RETRY_S = 2.0  # after a call that failed
TROUBLE_S = 5.0  # after a policy that failed; the loop has said why
INTERVAL_S = 10.0  # of policies that need none: other pods come and go, and nobody tells us of them

_log = logging.getLogger(__name__)


class Server:
    """Until it is told to stop. Jobs go on without it."""

    def __init__(self, policy: Policy, cluster: Namespace, interval_s: float | None) -> None:
        """`interval_s` overrules the policy's own; 0: only when something happened."""
        self.loop = Loop(policy, cluster)
        self._cluster = cluster
        self._interval_s = interval_s if interval_s is not None else policy.interval_s or INTERVAL_S
        self._asks_at_events = policy.asks_at_events or not self._interval_s
        self._stopped = threading.Event()
        self._news = threading.Event()

    def stop(self) -> None:
        """From a signal handler or another thread."""
        self._stopped.set()
        self._news.set()

    def run(self) -> None:
        for kind, namespace, key in ((ELASTIC_JOB, self._cluster.namespace, _of_job), (NODE, "", _of_node)):
            threading.Thread(target=self._watch, args=(kind, namespace, key), name=kind.plural, daemon=True).start()
        while not self._stopped.is_set():
            self._news.wait(self._turn())
            if self._news.is_set():
                self._stopped.wait(SETTLE_S)

    def _turn(self) -> float | None:
        """One decision; seconds until the next that needs no news. None: for ever."""
        self._news.clear()
        try:
            self.loop.turn(time.time())
        except ElasticDLError as exc:
            _log.warning("%s; trying again", exc)
            return RETRY_S
        return TROUBLE_S if self.loop.trouble else self._interval_s or None

    def _watch(self, kind: Kind, namespace: str, key: Callable[[Any], Any]) -> None:
        for changes in follow(self._cluster.api, kind, namespace, "", self._stopped):
            sides = ((change.before and key(change.before), change.after and key(change.after)) for change in changes)
            if self._asks_at_events and any(before != after for before, after in sides):
                self._news.set()


def _of_job(document: Any) -> Any:
    found = read(document)
    return None if found is None else found.key


def _of_node(document: Any) -> Any:
    spec, status = document.get("spec", {}), document.get("status", {})
    ready = [one["status"] for one in status.get("conditions", []) if one["type"] == "Ready"]
    return spec.get("unschedulable"), str(spec.get("taints")), str(status.get("allocatable")), ready
