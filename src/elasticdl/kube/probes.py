"""What a kubelet asks a process of ours over HTTP, and the beat of its event loop, by which it is seen to live."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from elasticdl.http_server import Answer, HttpServer

__all__ = ["Answer", "Heartbeat", "Probes"]

BEAT_S = 1.0


class Probes(HttpServer):
    """Answers a kubelet on every address of the pod. `answer` is asked with the path."""

    def __init__(self, port: int, answer: Callable[[str], Answer]) -> None:
        super().__init__("", port, lambda request: answer(request.path))


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
