"""Asserts that code acquires nothing: constructors store, `start()`, `open()` and `with` act."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def acquires_nothing() -> Iterator[None]:
    """Fails if the code inside starts a thread or opens a file, a socket or a pipe."""
    threads, descriptors = set(threading.enumerate()), _open_descriptors()
    yield
    assert set(threading.enumerate()) == threads, "a thread was started"
    assert _open_descriptors() == descriptors, "a descriptor was opened"


def _open_descriptors() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}
