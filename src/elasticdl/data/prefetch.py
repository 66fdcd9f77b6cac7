"""Reads ahead: a thread reads the records of coming batches while the caller computes.

It runs only readers. The user's functions run in the caller's thread, in order, so that their
random numbers do not depend on timing.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from elasticdl import watchdog
from elasticdl.data.interface import Indices, Reader
from elasticdl.vital import VitalThread


@dataclass(slots=True)
class _PendingRead:
    """Indices that were announced, and the result of reading them."""

    indices: Indices
    is_running: bool = False
    records: Any = None
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.records is not None or self.error is not None


class Prefetcher:
    """Records by key, read ahead for at most `depth` keys.

    `expect` announces what is taken next, and replaces earlier announcements: records that were read for another key,
    or for other indices of the same key, are dropped. `take` returns the records of exactly the indices it is called
    with, whether they were announced or not.
    """

    def __init__(self, source: Reader, depth: int = 4) -> None:
        self._source = source
        self._depth = depth
        self._pending: dict[Hashable, _PendingRead] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = VitalThread(self._read_ahead, name="elasticdl-prefetch")

    def __enter__(self) -> Prefetcher:
        if self._source.can_read_ahead:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def expect(self, upcoming: Sequence[tuple[Hashable, Indices]]) -> None:
        """Announces what will be taken, in this order."""
        with self._changed:
            before, self._pending = self._pending, {}
            for key, indices in upcoming:
                earlier = before.get(key)
                is_same = earlier is not None and np.array_equal(earlier.indices, indices)
                self._pending[key] = earlier if earlier is not None and is_same else _PendingRead(indices)
            self._changed.notify_all()

    def take(self, key: Hashable, indices: Indices) -> Any:
        """Returns the records of `indices` as the source reads them. Raises what reading them raised."""
        with self._changed:
            read = self._pending.pop(key, None)
            if read is not None and not np.array_equal(read.indices, indices):
                read = None
            if read is not None and read.is_running:
                with watchdog.reading_records():
                    while read.is_running and not self._is_closed:
                        self._changed.wait()
            self._changed.notify_all()
        if read is not None and read.error is not None:
            raise read.error
        if read is not None and read.records is not None:
            return read.records
        with watchdog.reading_records():
            return self._source.read(indices)

    def close(self) -> None:
        """Ends the thread after its current read. The source stays open."""
        with self._changed:
            self._is_closed = True
            self._pending.clear()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _read_ahead(self) -> None:
        while (read := self._next()) is not None:
            try:
                records, error = self._source.read(read.indices), None
            except Exception as exc:  # raised again where the records are taken
                records, error = None, exc
            with self._changed:
                read.records, read.error, read.is_running = records, error, False
                self._changed.notify_all()

    def _next(self) -> _PendingRead | None:
        """Waits for the first pending read within the depth, and returns it; None when closed."""
        with self._changed:
            while not self._is_closed:
                for read in list(self._pending.values())[: self._depth]:
                    if not read.is_done:
                        read.is_running = True
                        return read
                self._changed.wait()
        return None
