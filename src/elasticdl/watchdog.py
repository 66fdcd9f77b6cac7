"""Pauses the watchdog, which replaces workers without progress, during work that takes long.

    from elasticdl.watchdog import pause_watchdog

    with pause_watchdog("evaluates on the complete test set"):
        evaluate(model)

The watchdog itself is in the master (master/machine/stalls.py). Any thread may pause it, for the whole process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pauses: list[str] = []
_reads = 0  # in progress


@contextmanager
def pause_watchdog(reason: str) -> Iterator[None]:
    """Pauses the watchdog inside the `with` block. `reason` completes the sentence "the worker …"."""
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
    """Marks that the training thread waits for records, which may take longer than a step but is limited, too."""
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
