"""Trying again while a database is away: for a bounded time, each wait longer than the one before."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from elasticdl.errors import DatabaseAway, DataUnavailable

_log = logging.getLogger(__name__)

RETRY_S = 60.0
_FIRST_S, _LONGEST_S = 0.1, 5.0

T = TypeVar("T")


def patiently(
    attempt: Callable[[], T],
    name: str,
    retry_s: float = RETRY_S,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> T:
    """What `attempt` gives, tried again for `retry_s` seconds while it raises DatabaseAway; then DataUnavailable."""
    until, pause_s = clock() + retry_s, _FIRST_S
    while True:
        try:
            return attempt()
        except DatabaseAway as exc:
            left_s = until - clock()
            if left_s <= 0:
                raise DataUnavailable(
                    f"{name}: the database did not answer for {retry_s:g} s: {exc}; see to it, then go on from the "
                    f"newest checkpoint, or wait longer with data.retry_s (--data_retry_s)"
                ) from exc
            _log.warning("%s: the database does not answer, trying again for %.0f s: %s", name, left_s, exc)
            wait(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _LONGEST_S)
