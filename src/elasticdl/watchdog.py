"""What a process tells the watchdog of progress about work that takes long and is no reason to replace a worker.

    from elasticdl.watchdog import paused

    with paused("evaluates on the whole test set"):
        evaluate(model)

The watchdog itself is in the master (master/machine/stalls.py). Any thread may pause it; a pause holds for the whole
process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pauses: list[str] = []
_reads = 0  # under way


@contextmanager
def pause_watchdog(reason: str) -> Iterator[None]:
    """Pauses the watchdog: no step is expected inside. `reason` completes the sentence "the worker …"."""
    with _lock:
        _pauses.append(reason)
    try:
        yield
    finally:
        with _lock:
            _pauses.remove(reason)


def pause_reason() -> str:
    """The reason why no step is expected; "" if one is."""
    with _lock:
        return _pauses[-1] if _pauses else ""


@contextmanager
def reading_records() -> Iterator[None]:
    """Marks that the training thread waits for records, which may take longer than a step, but not for ever."""
    global _reads
    with _lock:
        _reads += 1
    try:
        yield
    finally:
        with _lock:
            _reads -= 1


def is_reading_records() -> bool:
    return _reads > 0
