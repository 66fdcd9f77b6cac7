"""HTTP probes for the kubelet, and the heartbeat of an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from elasticdl.http_server import HttpResponse, HttpServer

__all__ = ["HttpResponse", "LoopHeartbeat", "ProbeServer"]

HEARTBEAT_S = 1.0


class ProbeServer(HttpServer):
    """Answers the kubelet on all addresses of the pod: `answer` maps a path to the response."""

    def __init__(self, port: int, answer: Callable[[str], HttpResponse]) -> None:
        super().__init__("", port, lambda request: answer(request.path))


class LoopHeartbeat:
    """Shows other threads whether the event loop runs: a task of the loop notes the time every second."""

    def __init__(self, heartbeat_timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = heartbeat_timeout_s
        self._clock = clock
        self._beat_at = clock()

    async def run(self) -> None:
        while True:
            self._beat_at = self._clock()
            await asyncio.sleep(HEARTBEAT_S)

    @property
    def silence_reason(self) -> str:
        """Why the process should be restarted; "" while the loop runs."""
        silent_s = self._clock() - self._beat_at
        return f"the event loop has been silent for {silent_s:.0f} s" if silent_s > self._timeout_s else ""
