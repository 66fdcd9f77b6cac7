"""Whether the operator lives, and its figures, over HTTP: /healthz and /metrics.

Not kopf's own endpoint: an operator that waits for its Lease does not run kopf yet, and must not be killed for that.
"""

from __future__ import annotations

import asyncio
import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from elasticdl.kube.probes import Answer, Probes

BEAT_S = 1.0
SILENCE_S = 60.0

FIGURES = CollectorRegistry()
IS_LEADER = Gauge("elasticdl_operator_is_leader", "1 in the operator that acts.", registry=FIGURES)
JOBS = Gauge("elasticdl_operator_jobs", "ElasticJobs by phase.", ["phase"], registry=FIGURES)
RECONCILED = Counter("elasticdl_operator_reconciled", "Looks at a job, by outcome.", ["outcome"], registry=FIGURES)
RECONCILE_S = Histogram("elasticdl_operator_reconcile_seconds", "How long a look at a job took.", registry=FIGURES)


class Health:
    """Beats with the event loop; answers from a thread of its own, so that a loop that hangs is seen."""

    def __init__(self, port: int, *, silence_s: float = SILENCE_S) -> None:
        self._silence_s = silence_s
        self._beat_at = time.monotonic()
        self._probes = Probes(port, self.answer)
        self.port = self._probes.port

    async def beat(self) -> None:
        while True:
            self._beat_at = time.monotonic()
            await asyncio.sleep(BEAT_S)

    def answer(self, path: str) -> Answer:
        if path == "/metrics":
            return Answer(200, generate_latest(FIGURES), CONTENT_TYPE_LATEST)
        if path != "/healthz":
            return Answer(404, b"there are /healthz and /metrics\n")
        silent_s = time.monotonic() - self._beat_at
        is_silent = silent_s > self._silence_s
        return Answer.of(f"the event loop has been silent for {silent_s:.0f} s" if is_silent else "")

    def close(self) -> None:
        self._probes.close()
