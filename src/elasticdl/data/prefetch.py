"""Reading ahead: a thread reads the records of coming batches while the caller computes.

It runs readers only, never a person's functions: those run in the caller's thread, in order, so that their
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
    """An index array that was announced, and what became of it."""

    indices: Indices
    is_running: bool = False
    records: Any = None
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.records is not None or self.error is not None


class Prefetcher:
    """Records by key, read ahead at most `depth` keys.

    `expect` says what will be taken next, and replaces what was said before: what was read for another key, or for
    other indices of the same key, is dropped. `take` gives the records of exactly the indices it is called with,
    whether they were expected or not.
    """

    def __init__(self, source: Reader, depth: int = 4) -> None:
        self._source = source
        self._depth = depth
        self._wishes: dict[Hashable, _PendingRead] = {}
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
        """These will be taken, in this order."""
        with self._changed:
            before, self._wishes = self._wishes, {}
            for key, indices in upcoming:
                known = before.get(key)
                same = known is not None and np.array_equal(known.indices, indices)
                self._wishes[key] = known if known is not None and same else _PendingRead(indices)
            self._changed.notify_all()

    def take(self, key: Hashable, indices: Indices) -> Any:
        """The records of `indices`, as the source gives them. Raises what reading them raised."""
        with self._changed:
            wish = self._wishes.pop(key, None)
            if wish is not None and not np.array_equal(wish.indices, indices):
                wish = None
            if wish is not None and wish.is_running:
                with watchdog.reading_records():
                    while wish.is_running and not self._is_closed:
                        self._changed.wait()
            self._changed.notify_all()
        if wish is not None and wish.error is not None:
            raise wish.error
        if wish is not None and wish.records is not None:
            return wish.records
        with watchdog.reading_records():
            return self._source.read(indices)

    def close(self) -> None:
        """End the thread after the read it is in. The source stays open."""
        with self._changed:
            self._is_closed = True
            self._wishes.clear()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _read_ahead(self) -> None:
        while (wish := self._next()) is not None:
            try:
                records, error = self._source.read(wish.indices), None
            except Exception as exc:  # raised again where the records are taken
                records, error = None, exc
            with self._changed:
                wish.records, wish.error, wish.is_running = records, error, False
                self._changed.notify_all()

    def _next(self) -> _PendingRead | None:
        """The first wish within the depth that is not read yet, as soon as there is one; None at the end."""
        with self._changed:
            while not self._is_closed:
                for wish in list(self._wishes.values())[: self._depth]:
                    if not wish.is_done:
                        wish.is_running = True
                        return wish
                self._changed.wait()
        return None
