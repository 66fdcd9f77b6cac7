"""How long a serving thread has been at one request: what heartbeats tell the watchdog of progress.

Ages are added up heartbeat by heartbeat: time in which the whole process was stopped does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_MOST_S = 1.0  # what counts between two heartbeats, at most


class Pulse:
    """`serving` is used by the serving threads, each with its number; `sample` by the thread of the heartbeats."""

    def __init__(self, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turns = [0] * threads  # requests begun and ended: odd while one is in work
        self._seen = [0] * threads
        self._ages_s = [0.0] * threads
        self._sampled_at = clock()

    @contextmanager
    def serving(self, thread: int) -> Iterator[None]:
        """A request is in work."""
        self._turns[thread] += 1
        try:
            yield
        finally:
            self._turns[thread] += 1

    def sample(self) -> float:
        """Seconds that the oldest request has been in work. To be called with every heartbeat."""
        now = self._clock()
        passed_s, self._sampled_at = min(now - self._sampled_at, _MOST_S), now
        for thread, turn in enumerate(list(self._turns)):
            is_same = turn == self._seen[thread] and turn % 2 == 1
            self._ages_s[thread] = self._ages_s[thread] + passed_s if is_same else 0.0
            self._seen[thread] = turn
        return max(self._ages_s, default=0.0)
