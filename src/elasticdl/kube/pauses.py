"""How long to wait before asking an API server again that had nothing good to say."""

from __future__ import annotations

import random
from collections.abc import Iterator

LEAST_S, MOST_S = 0.1, 5.0


def pauses(least_s: float = LEAST_S, most_s: float = MOST_S, spread: float = 0.5) -> Iterator[float]:
    """Each twice the one before, up to `most_s`. `spread` is the share left to chance: masters that lost the same
    server at the same moment shall not all come back at the same moment."""
    pause = least_s
    while True:
        yield pause * (1 - spread * random.random())
        pause = min(most_s, 2 * pause)
