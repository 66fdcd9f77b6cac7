"""Serves /healthz and /metrics of the operator over HTTP.

kopf's own endpoint does not do: an operator that waits for its Lease does not run kopf yet, and must not be restarted
for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from elasticdl.kube.probes import HttpResponse, LoopHeartbeat, ProbeServer

MAX_LOOP_SILENCE_S = 60.0
MAX_RECONCILE_S = 600.0  # a reconciliation makes some twenty calls, each with a timeout of its own

REGISTRY = CollectorRegistry()
IS_LEADER = Gauge("elasticdl_operator_is_leader", "1 if this operator is the leader.", registry=REGISTRY)
JOBS = Gauge("elasticdl_operator_jobs", "ElasticJobs by phase.", ["phase"], registry=REGISTRY)
RECONCILES = Counter("elasticdl_operator_reconciled", "Reconciliations by outcome.", ["outcome"], registry=REGISTRY)
RECONCILE_S = Histogram("elasticdl_operator_reconcile_seconds", "Duration of a reconciliation.", registry=REGISTRY)


class ReconcileTracker:
    """Knows which reconciliations are running: an event loop can run while all its worker threads are stuck."""

    def __init__(self, max_reconcile_s: float = MAX_RECONCILE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_reconcile_s = max_reconcile_s
        self._clock = clock
        self._started_at: dict[str, float] = {}  # by job

    @contextmanager
    def track(self, job: str) -> Iterator[None]:
        self._started_at[job] = self._clock()
        try:
            yield
        finally:
            del self._started_at[job]

    @property
    def stuck_reason(self) -> str:
        """Why the process should be restarted; "" while reconciliations end."""
        now = self._clock()
        for job, started_at in list(self._started_at.items()):
            if now - started_at > self._max_reconcile_s:
                return f"the reconciliation of {job} has been running for {now - started_at:.0f} s"
        return ""


RUNNING_RECONCILES = ReconcileTracker()


class HealthServer:
    """Answers the kubelet and Prometheus between `start` and `close`, or in a `with` block, in its own thread."""

    def __init__(
        self,
        port: int,
        *,
        heartbeat_timeout_s: float = MAX_LOOP_SILENCE_S,
        running_reconciles: ReconcileTracker = RUNNING_RECONCILES,
    ) -> None:
        self.heartbeat = LoopHeartbeat(heartbeat_timeout_s)
        self._running_reconciles = running_reconciles
        self._server = ProbeServer(port, self.answer)

    @property
    def port(self) -> int:
        return self._server.port

    def answer(self, path: str) -> HttpResponse:
        if path == "/metrics":
            return HttpResponse(200, generate_latest(REGISTRY), CONTENT_TYPE_LATEST)
        if path != "/healthz":
            return HttpResponse(404, b"there are /healthz and /metrics\n")
        return HttpResponse.from_problem(self.heartbeat.silence_reason or self._running_reconciles.stuck_reason)

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
