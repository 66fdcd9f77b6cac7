"""Whether the operator lives, and its figures, over HTTP: /healthz and /metrics.

Not kopf's own endpoint: an operator that waits for its Lease does not run kopf yet, and must not be killed for that.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from elasticdl.kube.probes import Answer, Heartbeat, Probes

SILENCE_S = 60.0

FIGURES = CollectorRegistry()
IS_LEADER = Gauge("elasticdl_operator_is_leader", "1 in the operator that acts.", registry=FIGURES)
JOBS = Gauge("elasticdl_operator_jobs", "ElasticJobs by phase.", ["phase"], registry=FIGURES)
RECONCILED = Counter("elasticdl_operator_reconciled", "Looks at a job, by outcome.", ["outcome"], registry=FIGURES)
RECONCILE_S = Histogram("elasticdl_operator_reconcile_seconds", "How long a look at a job took.", registry=FIGURES)


class Health:
    """The heartbeat of the event loop, and the figures; answers from a thread of its own."""

    def __init__(self, port: int, *, silence_s: float = SILENCE_S) -> None:
        self.heart = Heartbeat(silence_s)
        self._probes = Probes(port, self.answer)
        self.port = self._probes.port

    def answer(self, path: str) -> Answer:
        if path == "/metrics":
            return Answer(200, generate_latest(FIGURES), CONTENT_TYPE_LATEST)
        if path != "/healthz":
            return Answer(404, b"there are /healthz and /metrics\n")
        return Answer.of(self.heart.silence)

    def close(self) -> None:
        self._probes.close()
