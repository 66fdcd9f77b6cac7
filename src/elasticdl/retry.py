"""Delays between attempts: exponential back-off with jitter."""

from __future__ import annotations

import random
from collections.abc import Iterator

MIN_DELAY_S, MAX_DELAY_S = 0.1, 5.0


def backoff_delays(least_s: float = MIN_DELAY_S, most_s: float = MAX_DELAY_S, spread: float = 0.5) -> Iterator[float]:
    """Each twice the one before, up to `most_s`. `spread` is the share left to chance: masters that lost the same
    server at the same moment shall not all come back at the same moment."""
    pause = least_s
    while True:
        yield pause * (1 - spread * random.random())
        pause = min(most_s, 2 * pause)
