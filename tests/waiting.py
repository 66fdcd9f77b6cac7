"""Waiting for what another process or thread does: the one place where tests look, and look again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_S = 0.03


def until(what: str, ask: Callable[[], T], timeout_s: float = 60.0, *, tell: Callable[[], object] = str) -> T:
    """The first answer that is true; asked again and again. `tell` says more where it never is."""
    end = time.monotonic() + timeout_s
    while not (answer := ask()):
        assert time.monotonic() < end, f"{what}: not so within {timeout_s:g} s\n{tell()}"
        time.sleep(LOOK_S)
    return answer
