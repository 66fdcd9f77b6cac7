"""A lock that many requests share, and that a snapshot or a move holds exclusively for a moment."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator


class SharedLock:
    """A readers-writer lock. The exclusive holder waits until all others have released it, and keeps new ones out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._is_closed = False
        self.waited_s = 0.0  # the time that all `acquire_shared` have waited

    def acquire_shared(self, *, wait: bool = True) -> bool:
        """Acquires the lock; call `release_shared` then. False: it is held exclusively and `wait` is false."""
        with self._changed:
            if self._is_closed:
                if not wait:
                    return False
                started = time.monotonic()
                while self._is_closed:
                    self._changed.wait()
                self.waited_s += time.monotonic() - started
            self._inside += 1
        return True

    def release_shared(self) -> None:
        with self._changed:
            self._inside -= 1
            if self._is_closed and not self._inside:
                self._changed.notify_all()

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        self.acquire_shared()
        try:
            yield
        finally:
            self.release_shared()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._changed:
            while self._is_closed:
                self._changed.wait()
            self._is_closed = True
            while self._inside:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()
