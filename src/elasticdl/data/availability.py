"""Retries reads while data is unavailable, for a bounded time, and tells a listener when a wait is long."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from elasticdl import watchdog
from elasticdl.errors import DatabaseUnavailable, DataUnavailable, FileUnavailable
from elasticdl.retry import retry_call

_log = logging.getLogger(__name__)

RETRY_S = 60.0
_REPORT_AFTER_S = 0.5  # shorter waits are only logged

T = TypeVar("T")

WaitListener = Callable[[bool, str], None]


def _ignore_wait(is_waiting: bool, reason: str) -> None:
    """The listener until one is set."""


_listener: WaitListener = _ignore_wait


def set_wait_listener(listener: WaitListener) -> None:
    """Calls `listener(is_waiting, reason)`, on any thread, when a wait for data gets long and when it is over."""
    global _listener
    _listener = listener


class DataWait:
    """One wait for the data called `name`."""

    def __init__(self, name: str, wait: Callable[[float], None] = time.sleep) -> None:
        self._name = name
        self._wait = wait
        self._waited_s = 0.0
        self._is_reported = False
        self.reason = ""

    def wait(self, seconds: float, reason: str) -> None:
        if self._waited_s >= _REPORT_AFTER_S and not self._is_reported:
            self._is_reported = True
            _listener(True, f"{self._name}: {reason}; it is tried again")
        with watchdog.pause_watchdog(f"waits for {self._name}"):
            self._wait(seconds)
        self._waited_s += seconds

    def end(self) -> None:
        """Reports that the data is available again."""
        if self._is_reported:
            _listener(False, f"{self._name}: read again after {self._waited_s:.1f} s")


def retry_until_available(
    attempt: Callable[[], T],
    name: str,
    retry_s: float = RETRY_S,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> T:
    """Returns what `attempt` returns, and tries again for `retry_s` seconds while it raises a transient error.

    Transient are DatabaseUnavailable and FileUnavailable; after that time it raises DataUnavailable.
    """
    data_wait = DataWait(name, wait)

    def note_wait(error: Exception, remaining_s: float) -> None:
        problem = "it cannot be read" if isinstance(error, FileUnavailable) else "the database does not answer"
        _log.warning("%s: %s, trying again for %.0f s: %s", name, problem, remaining_s, error)
        data_wait.reason = f"{problem}: {error}"

    try:
        result = retry_call(
            attempt,
            lambda error: isinstance(error, DatabaseUnavailable | FileUnavailable),
            retry_s,
            clock=clock,
            sleep=lambda delay_s: data_wait.wait(delay_s, data_wait.reason),
            on_wait=note_wait,
        )
    except (DatabaseUnavailable, FileUnavailable) as exc:
        problem = "it could not be read" if isinstance(exc, FileUnavailable) else "the database did not answer"
        raise DataUnavailable(
            f"{name}: {problem} for {retry_s:g} s: {exc}; repair it, then resume from the newest "
            f"checkpoint, or wait longer with data.retry_s (--data_retry_s)"
        ) from exc
    data_wait.end()
    return result
