"""Waiting for another process or thread by polling; all tests that poll do it here."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.03


def until(condition: str, poll: Callable[[], T], timeout_s: float = 60.0, *, tell: Callable[[], object] = str) -> T:
    """Calls `poll` until it returns something true, and returns that. `tell` explains a timeout."""
    end = time.monotonic() + timeout_s
    while not (answer := poll()):
        assert time.monotonic() < end, f"{condition}: not so within {timeout_s:g} s\n{tell()}"
        time.sleep(POLL_S)
    return answer
