"""What workers and ps say to each other: multipart messages of a fixed header and raw arrays. Pure.

A message is a header frame, then for each part a frame that describes it and its arrays as they lie in memory
(little-endian). Nothing is copied on the way to a frame or from one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
Buffer = Any  # bytes, memoryview, or an array

_MAGIC = b"EDP1"
# magic, kind, status, parts, version of the slot map, origin, token, request, sender, batch, settled, step, rate
_HEADER = struct.Struct("<4sBBHII16sQQQQQd")
_PART = struct.Struct("<HHIII")  # table, frames that follow, ids, columns, bytes of an element of the rows
_MOST_PARTS = 4096


class Kind(IntEnum):
    DECLARE = 1  # tables, as JSON in `text`
    PULL = 2
    PUSH = 3
    LOOK = 4  # a pull that makes no rows
    STATUS = 5
    REPLY = 6
    LOAD = 7  # rows of slots that move; for each table a part with ids and values, then one with their state
    TAKE = 8  # the slots are yours from here on; the map and the pushes applied so far are in `text`
    CUT = 20  # copy the rows that changed since another cut; which one is in `text`, see keeper.py
    KEPT = 21  # write that copy to the disk; answered at once, with whether it is done


class Status(IntEnum):
    OK = 0
    MOVED = 1  # not my slots; the map is in `text`
    REFUSED = 2  # the request is wrong; why is in `text`
    DENIED = 3  # wrong token


class Malformed(ValueError):
    """Frames that are no message of ours."""


class Part(NamedTuple):
    """What concerns one table. An answer has rows only, a pull has ids only."""

    table: int
    ids: Ids
    rows: Floats


class Message(NamedTuple):
    kind: Kind
    request: int
    version: int = 0  # of the slot map it was made with
    status: Status = Status.OK
    token: bytes = bytes(16)
    origin: int = 0  # the ps a push was made for, by number
    sender: int = 0  # a worker, by number
    batch: int = 0  # pushes of one sender are numbered from 1; 0: not counted
    settled: int = 0  # none below this will come again
    step: int = 0
    rate: float = 0.0
    parts: tuple[Part, ...] = ()
    text: bytes = b""


NO_IDS: Ids = np.empty(0, np.int64)
NO_ROWS: Floats = np.empty((0, 0), np.float32)


def encode(message: Message) -> list[Buffer]:
    header = _HEADER.pack(
        _MAGIC, message.kind, message.status, len(message.parts), message.version, message.origin, message.token,
        message.request, message.sender, message.batch, message.settled, message.step, message.rate,
    )  # fmt: skip
    frames: list[Buffer] = [header, message.text]
    for table, ids, rows in message.parts:
        count, columns = rows.shape
        frames.append(_PART.pack(table, (len(ids) > 0) + (rows.size > 0), len(ids), count, columns))
        if len(ids):
            frames.append(ids)
        if rows.size:
            frames.append(rows)
    return frames


def decode(frames: Sequence[Buffer]) -> Message:
    """Raises Malformed for anything that is not exactly a message."""
    if len(frames) < 2:
        raise Malformed(f"expected a header and a text. Received: {len(frames)} frames")
    header = _unpack(_HEADER, frames[0], "header")
    magic, kind, status, count, version, origin, token, request, sender, batch, settled, step, rate = header
    if magic != _MAGIC:
        raise Malformed("the header does not begin with EDP1")
    if kind not in Kind.__members__.values() or status not in Status.__members__.values() or count > _MOST_PARTS:
        raise Malformed(f"unknown kind {kind}, status {status}, or {count} parts")
    parts, at = [], 2
    for _ in range(count):
        if at >= len(frames):
            raise Malformed("a part is missing")
        table, arrays, ids, rows, columns = _unpack(_PART, frames[at], "part")
        at += 1
        if arrays != (ids > 0) + (rows * columns > 0) or at + arrays > len(frames):
            raise Malformed("the arrays of a part are missing")
        found_ids, found_rows = NO_IDS, np.empty((rows, columns), np.float32) if rows * columns == 0 else NO_ROWS
        if ids:
            found_ids = _array(frames[at], np.dtype("<i8"), ids)
            at += 1
        if rows * columns:
            found_rows = _array(frames[at], np.dtype("<f4"), rows * columns).reshape(rows, columns)
            at += 1
        parts.append(Part(table, found_ids, found_rows))
    if at != len(frames):
        raise Malformed(f"{len(frames) - at} frames too many")
    text = bytes(memoryview(frames[1]))
    return Message(
        Kind(kind), request, version, Status(status), token, origin, sender, batch, settled, step, rate,
        tuple(parts), text,
    )  # fmt: skip


def _unpack(layout: struct.Struct, frame: Buffer, what: str) -> tuple[Any, ...]:
    if memoryview(frame).nbytes != layout.size:
        raise Malformed(f"{what}: expected {layout.size} bytes. Received: {memoryview(frame).nbytes}")
    return layout.unpack(frame)


def _array(frame: Buffer, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    size = memoryview(frame).nbytes
    if size != count * dtype.itemsize:
        raise Malformed(f"array: expected {count} x {dtype.itemsize} bytes. Received: {size}")
    return np.frombuffer(frame, dtype)
