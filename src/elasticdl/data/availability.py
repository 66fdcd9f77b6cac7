"""Retries reads while data is unavailable, for a bounded time, and tells a listener when a wait is long."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from elasticdl import watchdog
from elasticdl.errors import DatabaseUnavailable, DataUnavailable, FileUnavailable

_log = logging.getLogger(__name__)

RETRY_S = 60.0
_FIRST_S, _LONGEST_S = 0.1, 5.0
_TOLD_AFTER_S = 0.5  # what is over sooner is in the log only

T = TypeVar("T")

WaitListener = Callable[[bool, str], None]


def _ignore_wait(is_waiting: bool, reason: str) -> None:
    """The listener until one is set."""


_listener: WaitListener = _ignore_wait


def set_wait_listener(listener: WaitListener) -> None:
    """Let `listener(is_waiting, reason)` hear when a wait for data lasts, and when it is over. Called by any thread."""
    global _listener
    _listener = listener


class DataWait:
    """One wait for the data called `name`."""

    def __init__(self, name: str, wait: Callable[[float], None] = time.sleep) -> None:
        self._name = name
        self._wait = wait
        self._waited_s = 0.0
        self._is_told = False

    def wait(self, seconds: float, why: str) -> None:
        if self._waited_s >= _TOLD_AFTER_S and not self._is_told:
            self._is_told = True
            _listener(True, f"{self._name}: {why}; it is tried again")
        with watchdog.pause_watchdog(f"waits for {self._name}"):
            self._wait(seconds)
        self._waited_s += seconds

    def end(self) -> None:
        """The data is there."""
        if self._is_told:
            _listener(False, f"{self._name}: read again after {self._waited_s:.1f} s")


def retry_until_available(
    attempt: Callable[[], T],
    name: str,
    retry_s: float = RETRY_S,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> T:
    """What `attempt` gives, tried again for `retry_s` seconds while it raises DatabaseAway or FileAway.

    Then DataUnavailable.
    """
    until, pause_s, waiting = clock() + retry_s, _FIRST_S, DataWait(name, wait)
    while True:
        try:
            found = attempt()
        except (DatabaseUnavailable, FileUnavailable) as exc:
            is_file = isinstance(exc, FileUnavailable)
            left_s = until - clock()
            if left_s <= 0:
                what = "it could not be read" if is_file else "the database did not answer"
                raise DataUnavailable(
                    f"{name}: {what} for {retry_s:g} s: {exc}; see to it, then go on from the "
                    f"newest checkpoint, or wait longer with data.retry_s (--data_retry_s)"
                ) from exc
            what = "it cannot be read" if is_file else "the database does not answer"
            _log.warning("%s: %s, trying again for %.0f s: %s", name, what, left_s, exc)
            waiting.wait(min(pause_s, left_s), f"{what}: {exc}")
            pause_s = min(2 * pause_s, _LONGEST_S)
        else:
            waiting.end()
            return found
