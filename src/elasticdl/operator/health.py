"""Whether the operator lives, and its figures, over HTTP: /healthz and /metrics.

Not kopf's own endpoint: an operator that waits for its Lease does not run kopf yet, and must not be killed for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from elasticdl.kube.probes import HttpResponse, LoopHeartbeat, ProbeServer

MAX_LOOP_SILENCE_S = 60.0
MAX_RECONCILE_S = 600.0  # a look at a job is some twenty calls, each with a limit of its own

REGISTRY = CollectorRegistry()
IS_LEADER = Gauge("elasticdl_operator_is_leader", "1 in the operator that acts.", registry=REGISTRY)
JOBS = Gauge("elasticdl_operator_jobs", "ElasticJobs by phase.", ["phase"], registry=REGISTRY)
RECONCILES = Counter("elasticdl_operator_reconciled", "Looks at a job, by outcome.", ["outcome"], registry=REGISTRY)
RECONCILE_S = Histogram("elasticdl_operator_reconcile_seconds", "How long a look at a job took.", registry=REGISTRY)


class ReconcileTracker:
    """The looks at jobs that are under way: an event loop may beat while all its threads are stuck in them."""

    def __init__(self, longest_s: float = MAX_RECONCILE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._longest_s = longest_s
        self._clock = clock
        self._begun: dict[str, float] = {}

    @contextmanager
    def track(self, job: str) -> Iterator[None]:
        self._begun[job] = self._clock()
        try:
            yield
        finally:
            del self._begun[job]

    @property
    def silence_reason(self) -> str:
        """Why the process should be started again; "" while looks end."""
        now = self._clock()
        for job, begun_at in list(self._begun.items()):
            if now - begun_at > self._longest_s:
                return f"a look at {job} has not ended for {now - begun_at:.0f} s"
        return ""


RUNNING_RECONCILES = ReconcileTracker()


class HealthServer:
    """The heartbeat of the event loop, the looks under way, and the figures; answers from a thread of its own."""

    def __init__(
        self,
        port: int,
        *,
        heartbeat_timeout_s: float = MAX_LOOP_SILENCE_S,
        looks: ReconcileTracker = RUNNING_RECONCILES,
    ) -> None:
        self.heartbeat = LoopHeartbeat(heartbeat_timeout_s)
        self._looks = looks
        self._probes = ProbeServer(port, self.answer)
        self.port = self._probes.port

    def answer(self, path: str) -> HttpResponse:
        if path == "/metrics":
            return HttpResponse(200, generate_latest(REGISTRY), CONTENT_TYPE_LATEST)
        if path != "/healthz":
            return HttpResponse(404, b"there are /healthz and /metrics\n")
        return HttpResponse.from_problem(self.heartbeat.silence_reason or self._looks.silence_reason)

    def close(self) -> None:
        self._probes.close()
