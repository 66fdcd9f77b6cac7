"""Whether the operator lives, and its figures, over HTTP: /healthz and /metrics.

Not kopf's own endpoint: an operator that waits for its Lease does not run kopf yet, and must not be killed for that.
"""

from __future__ import annotations

import asyncio
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

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
        health = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = health.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Probes come every few seconds; nobody wants to read of them."""

        self._server = ThreadingHTTPServer(("", port), Answer)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    async def beat(self) -> None:
        while True:
            self._beat_at = time.monotonic()
            await asyncio.sleep(BEAT_S)

    def answer(self, path: str) -> tuple[int, str, bytes]:
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(FIGURES)
        if path != "/healthz":
            return 404, "text/plain", b"there are /healthz and /metrics\n"
        silent_s = time.monotonic() - self._beat_at
        if silent_s > self._silence_s:
            return 503, "text/plain", f"the event loop has been silent for {silent_s:.0f} s\n".encode()
        return 200, "text/plain", b"ok\n"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
