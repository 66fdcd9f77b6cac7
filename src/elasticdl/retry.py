"""The one back-off: how long to wait between two attempts, and a call that is repeated until it succeeds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

MIN_DELAY_S, MAX_DELAY_S = 0.1, 5.0

T = TypeVar("T")


def backoff_delay(failures: int, min_s: float = MIN_DELAY_S, max_s: float = MAX_DELAY_S) -> float:
    """The delay after a failure that follows `failures` others: `min_s`, doubled by each of them, up to `max_s`."""
    return min(max_s, min_s * 2.0 ** min(failures, 64))


def backoff_delays(min_s: float = MIN_DELAY_S, max_s: float = MAX_DELAY_S, jitter: float = 0.5) -> Iterator[float]:
    """Yields delays without end, each twice the one before, up to `max_s`.

    `jitter` is the random share of each delay, so that processes that lost the same server at the same moment do not
    all retry at the same moment.
    """
    failures = 0
    while True:
        yield backoff_delay(failures, min_s, max_s) * (1 - jitter * random.random())
        failures += 1


def retry_call(
    attempt: Callable[[], T],
    is_transient: Callable[[Exception], bool],
    timeout_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    on_wait: Callable[[Exception, float], None] | None = None,
) -> T:
    """Calls `attempt`, again for `timeout_s` seconds while it raises a transient error, and returns its result.

    Any other error is raised at once, and the last transient one when time is up. `on_wait` is called before each wait
    with the error and the remaining seconds.
    """
    deadline = clock() + timeout_s
    for delay_s in backoff_delays(jitter=0.0):
        try:
            return attempt()
        except Exception as exc:
            remaining_s = deadline - clock()
            if not is_transient(exc) or remaining_s <= 0:
                raise
            if on_wait is not None:
                on_wait(exc, remaining_s)
        sleep(min(delay_s, remaining_s))
    raise AssertionError("delays have no end")
