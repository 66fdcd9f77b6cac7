from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(what: str, ask: Callable[[], T], timeout_s: float = 60.0) -> T:
    """The first answer that is true; asked again and again."""
    end = time.monotonic() + timeout_s
    while not (answer := ask()):
        assert time.monotonic() < end, f"{what}: not so within {timeout_s:g} s"
        time.sleep(0.05)
    return answer
