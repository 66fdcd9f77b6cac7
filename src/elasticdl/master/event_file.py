"""TensorBoard's event files, written by one thread: what cannot be written now is kept and written later.

TensorBoard's own writer has a thread that dies with the first error, and waits for it for ever afterwards.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import time
from collections import deque
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter

VERSION = "brain.Event:2"
MAX_KEPT = 100_000  # events that wait for a disk; older ones are dropped

_log = logging.getLogger(__name__)
_numbers = itertools.count()


class EventFile:
    """Never raises for what a disk does. After an error a new file is begun: the old one may end in half a record."""

    def __init__(self, directory: Path, flush_s: float, max_kept: int = MAX_KEPT) -> None:
        self._directory = directory
        self._flush_s = flush_s
        self._kept: deque[Event] = deque(maxlen=max_kept)
        self._file: RecordWriter | None = None
        self._flush_at = 0.0
        self._is_failing = False

    def add(self, event: Event) -> None:
        self._kept.append(event)
        if time.monotonic() >= self._flush_at:
            self.flush()

    def flush(self) -> None:
        """All that was added is with the system afterwards, unless the disk refuses."""
        self._flush_at = time.monotonic() + self._flush_s
        if not self._kept:
            return
        data = [event.SerializeToString() for event in self._kept]
        try:
            if self._file is None:
                self._file = self._begin()
            for one in data:
                self._file.write(one)
            self._file.flush()
        except OSError as exc:
            if not self._is_failing:
                _log.warning("curves in %s cannot be written now, and are kept: %s", self._directory, exc)
            self._is_failing = True
            self._abandon()
        else:
            self._is_failing = False
            self._kept.clear()

    def close(self) -> None:
        self.flush()
        self._abandon()

    def _begin(self) -> RecordWriter:
        self._directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():010.0f}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
        made = RecordWriter((self._directory / name).open("wb"))
        made.write(Event(wall_time=time.time(), file_version=VERSION).SerializeToString())
        return made

    def _abandon(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError:
                return  # what it still had is kept here, and written to the next one
