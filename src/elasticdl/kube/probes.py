"""What a kubelet asks a process of ours over HTTP, and the beat of its event loop, by which it is seen to live."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

TEXT = "text/plain; charset=utf-8"
BEAT_S = 1.0


class Answer(NamedTuple):
    status: int
    body: bytes
    kind: str = TEXT

    @classmethod
    def of(cls, trouble: str, fine: str = "ok") -> Answer:
        """200 and `fine` without trouble, else 503 and what it is."""
        return cls(503 if trouble else 200, f"{trouble or fine}\n".encode())


class Probes:
    """Answers from threads of its own, so that a process that hangs is seen."""

    def __init__(self, port: int, answer: Callable[[str], Answer]) -> None:
        """`answer` is asked with the path; port 0: any free one."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = answer(self.path)
                self.send_response(found.status)
                self.send_header("Content-Type", found.kind)
                self.end_headers()
                self.wfile.write(found.body)

            def log_message(self, format: str, *args: object) -> None:
                """Probes come every few seconds; nobody wants to read of them."""

        self._server = ThreadingHTTPServer(("", port), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="probes", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Heartbeat:
    """Beats with the event loop; asked from other threads, so that a loop that hangs is seen."""

    def __init__(self, silence_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._silence_s = silence_s
        self._clock = clock
        self._beat_at = clock()

    async def run(self) -> None:
        while True:
            self._beat_at = self._clock()
            await asyncio.sleep(BEAT_S)

    @property
    def silence(self) -> str:
        """Why the process should be started again; "" while it beats."""
        silent_s = self._clock() - self._beat_at
        return f"the event loop has been silent for {silent_s:.0f} s" if silent_s > self._silence_s else ""
