"""Reads and writes TensorBoard's event files without the package tensorboard, which takes a second to import."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from google.protobuf.message import DecodeError

from elasticdl.reporting.event_file_pb2 import Event, Summary
from elasticdl.tfrecord_frames import frame_record, read_intact_records

PATTERN = "*tfevents*"
EVENT_FILE_VERSION = "brain.Event:2"
MAX_BUFFERED_EVENTS = 100_000  # events that wait for a disk; older ones are dropped
# The types of TensorFlow's tensors that a curve can have, by their numbers.
_TENSOR_TYPES = {
    number: struct.Struct(kind) for number, kind in ((1, "<f"), (2, "<d"), (3, "<i"), (9, "<q"), (19, "<e"))
}

_log = logging.getLogger(__name__)
_file_numbers = itertools.count()


def read_events(path: Path) -> Iterator[Event]:
    """Yields the events of one file, up to the first that is incomplete or damaged."""
    with path.open("rb") as file:
        for record in read_intact_records(file):
            try:
                event = Event.FromString(record)
            except DecodeError:
                return
            yield event


def scalar_of(value: Summary.Value) -> float | None:
    """Returns the number of one point of a curve; None for images, texts and histograms."""
    if value.HasField("simple_value"):
        return value.simple_value
    tensor = value.tensor
    if any(dim.size != 1 for dim in tensor.tensor_shape.dim):
        return None
    numbers: list[float] = [*tensor.float_val, *tensor.double_val]
    kind = _TENSOR_TYPES.get(tensor.dtype)
    if kind is not None and len(tensor.tensor_content) == kind.size:
        numbers = list(kind.unpack(tensor.tensor_content))
    return float(numbers[0]) if len(numbers) == 1 else None


class EventFileWriter:
    """Writes TensorBoard's event files in the caller's thread; events that cannot be written now are written later.

    TensorBoard's own writer has a thread that dies with the first error, and then waits for it forever. This one
    never raises an error of the disk; after one it starts a new file, because the old one may end in half a record.
    """

    def __init__(self, directory: Path, flush_s: float, max_kept: int = MAX_BUFFERED_EVENTS) -> None:
        self._directory = directory
        self._flush_s = flush_s
        self._kept: deque[Event] = deque(maxlen=max_kept)
        self._file: IO[bytes] | None = None
        self._flush_at = 0.0
        self._is_failing = False

    def add(self, event: Event) -> None:
        self._kept.append(event)
        if time.monotonic() >= self._flush_at:
            self.flush()

    def flush(self) -> None:
        """Hands all added events to the operating system, unless the disk refuses them."""
        self._flush_at = time.monotonic() + self._flush_s
        if not self._kept:
            return
        frames = b"".join(frame_record(event.SerializeToString()) for event in self._kept)
        try:
            if self._file is None:
                self._file = self._open_file()
            self._file.write(frames)
            self._file.flush()
        except OSError as exc:
            if not self._is_failing:
                _log.warning("curves in %s cannot be written now, and are kept: %s", self._directory, exc)
            self._is_failing = True
            self._close_file()
        else:
            self._is_failing = False
            self._kept.clear()

    def close(self) -> None:
        self.flush()
        self._close_file()

    def _open_file(self) -> IO[bytes]:
        self._directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():010.0f}.{socket.gethostname()}.{os.getpid()}.{next(_file_numbers)}"
        file = (self._directory / name).open("wb")
        file.write(frame_record(Event(wall_time=time.time(), file_version=EVENT_FILE_VERSION).SerializeToString()))
        return file

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError:
                return  # its remaining events are kept here, and written to the next file
