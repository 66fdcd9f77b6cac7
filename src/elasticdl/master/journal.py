"""The journal: every event that changed the state, appended and synced before it is acted on.

A record is its length, its CRC-32 and its payload: one event, or a whole state that stands for all before it.
A master that died while writing leaves a torn last record; it was never acted on, and is cut off.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

_HEADER = struct.Struct("<II")
_CHUNK_BYTES = 1 << 20

# A state of the job instead of the events that led to it, once replaying those would take seconds.
COMPACT_EVENTS = 1_000_000


def is_state(payload: bytes) -> bool:
    """Whether a record holds a whole state: a JSON object, where an event is an array."""
    return payload[:1] == b"{"


def frame(payload: bytes) -> bytes:
    return _HEADER.pack(len(payload), zlib.crc32(payload)) + payload


class Kept(Protocol):
    """What the master needs of a journal, in a file or elsewhere."""

    @property
    def is_long(self) -> bool:
        """Whether a whole state should stand for what is in it."""

    def replay(self) -> Iterator[bytes]: ...
    def append(self, payloads: list[bytes]) -> None: ...
    def compact(self, state: bytes) -> None: ...
    def close(self) -> None: ...


class Journal:
    """Read it once with `replay`, then append. Not for two processes at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self.events = 0  # records since the last whole state

    def replay(self) -> Iterator[bytes]:
        """Every whole record, oldest first; cuts off a torn tail, then the journal is open for appending."""
        valid = 0
        if self._path.exists():
            with self._path.open("rb") as file:
                for payload in _records(file.read):
                    valid += _HEADER.size + len(payload)
                    self.events = 0 if is_state(payload) else self.events + 1
                    yield payload
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.ftruncate(self._descriptor, valid)
        os.lseek(self._descriptor, 0, os.SEEK_END)
        _sync_directory(self._path)

    @property
    def is_long(self) -> bool:
        return self.events >= COMPACT_EVENTS

    def append(self, payloads: list[bytes]) -> None:
        """Group commit: all of them are on disk when this returns."""
        _write(self._descriptor, b"".join([frame(payload) for payload in payloads]))
        os.fdatasync(self._descriptor)
        self.events += len(payloads)

    def compact(self, state: bytes) -> None:
        """Begin anew with `state`. At any moment either the old or the new journal is whole."""
        staging = self._path.with_name(self._path.name + ".new")
        descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        _write(descriptor, frame(state))
        os.fdatasync(descriptor)
        staging.replace(self._path)
        _sync_directory(self._path)
        os.close(self._descriptor)
        self._descriptor, self.events = descriptor, 0

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _records(read: object) -> Iterator[bytes]:
    """Whole records of a stream, read in large pieces; ends at the first that is torn or damaged."""
    assert callable(read)
    buffer, at = b"", 0
    while True:
        piece = read(_CHUNK_BYTES)
        buffer, at = buffer[at:] + piece, 0
        while len(buffer) - at >= _HEADER.size:
            length, checksum = _HEADER.unpack_from(buffer, at)
            end = at + _HEADER.size + length
            if end > len(buffer):
                break
            payload = buffer[at + _HEADER.size : end]
            if zlib.crc32(payload) != checksum:
                return
            yield payload
            at = end
        if not piece:
            return


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
