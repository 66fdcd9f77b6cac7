"""What workers and ps say to each other: multipart messages of a fixed header and raw arrays. Pure.

A message is a header frame, then for each part a frame that describes it and its arrays as they lie in memory
(little-endian). Nothing is copied on the way to a frame or from one. Arrays that lie in memory which both sides see
are not sent: the part says where they are, see shared.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps import _native

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
Buffer = Any  # bytes, memoryview, or an array

_MAGIC = b"EDP3"
# magic, kind, status, parts, map version, copy of, transport, token, request, sender, batch, clock, step, rate, memory
_HEADER = struct.Struct("<4sBBHIHH16sQQQQQdQ")
_PART = struct.Struct("<HBBIIIQ")  # table, frames that follow, transport of the rows, ids, rows, columns, at
_MOST_PARTS = 4096


class Kind(IntEnum):
    DECLARE = 1  # tables, as JSON in `text`
    PULL = 2
    PUSH = 3
    LOOK = 4  # a pull that makes no rows
    STATUS = 5
    REPLY = 6
    LOAD = 7  # rows of slots that move; for each table a part with ids and values, then one with their state
    TAKE = 8  # the slots are yours from here on; the map is in `text`, their marks are the ids of the one part
    PUT = 9  # make rows with these values where there are none
    FORGET = 10  # drop what you have of the slots that are the ids of the one part
    ROWS = 12  # all rows of a stripe of a table: its number is the id of the one part
    SHARE = 11  # a memory of mine, if you can see it: its process and file in `text`
    CUT = 20  # copy the rows that changed since another cut; which one is in `text`, see keeper.py
    KEPT = 21  # write that copy to the disk; answered at once, with whether it is done


class Status(IntEnum):
    OK = 0
    MOVED = 1  # not my slots; the map is in `text`
    REFUSED = 2  # the request is wrong; why is in `text`
    DENIED = 3  # wrong token
    STALE = 4  # a push computed with values that are too old: nothing of it was taken
    UNSEEN = 5  # I do not see the memory you name: send the arrays


class Transport(IntEnum):
    """How rows and gradients travel."""

    FLOAT32 = 0
    FLOAT16 = 1
    BFLOAT16 = 2


class Malformed(ValueError):
    """Frames that are no message of ours."""


class NoMemory(LookupError):
    """The memory that a request names is not seen here, or not any more."""

    def __init__(self, name: int, request: int = 0) -> None:
        super().__init__(f"memory {name:016x} is not seen here")
        self.request = request


class Arrays(Protocol):
    """Memory that is seen on both sides, as a `shared.View` is."""

    def arrays(self, at: int, ids: int, rows: int, columns: int) -> tuple[Ids, Floats]: ...


class Part(NamedTuple):
    """What concerns one table. An answer has rows only, a pull has ids only, or ids and room for the rows."""

    table: int
    ids: Ids
    rows: Floats
    at: int = 0  # where both arrays lie in the memory of the message; 0: they are sent. Whoever receives them sees 0


class Message(NamedTuple):
    kind: Kind
    request: int
    version: int = 0  # of the slot map it was made with
    status: Status = Status.OK
    token: bytes = bytes(16)
    copy_of: int = 0  # meant for the copy that the receiver holds of ps-N: N + 1; 0: for what is its own
    sender: int = 0  # who computed a push: a logical rank, a lane
    batch: int = 0  # number of a push, counted from 1 by its sender; 0: not counted
    clock: int = 0  # in a reply that of the ps; in a push that of the pull it was computed with; 0: unknown
    step: int = 0
    rate: float = 0.0
    parts: tuple[Part, ...] = ()
    text: bytes = b""
    transport: Transport = Transport.FLOAT32  # of the rows in this message, and in the reply to it
    memory: int = 0  # in which arrays lie that are not sent


NO_IDS: Ids = np.empty(0, np.int64)
NO_ROWS: Floats = np.empty((0, 0), np.float32)


def encode(message: Message) -> list[Buffer]:
    transport = message.transport
    header = _HEADER.pack(
        _MAGIC, message.kind, message.status, len(message.parts), message.version, message.copy_of, transport,
        message.token, message.request, message.sender, message.batch, message.clock, message.step, message.rate,
        message.memory,
    )  # fmt: skip
    frames: list[Buffer] = [header, message.text]
    for table, ids, rows, at in message.parts:
        count, columns = rows.shape
        arrays = 0 if at else (len(ids) > 0) + (rows.size > 0)
        frames.append(_PART.pack(table, arrays, transport, len(ids), count, columns, at))
        if at:
            continue
        if len(ids):
            frames.append(ids)
        if rows.size:
            frames.append(rows if transport is Transport.FLOAT32 else _narrow(rows, transport))
    return frames


def decode(frames: Sequence[Buffer], memory: Callable[[int], Arrays] | None = None) -> Message:
    """Raises Malformed for anything that is not exactly a message, NoMemory where `memory` does."""
    if len(frames) < 2:
        raise Malformed(f"expected a header and a text. Received: {len(frames)} frames")
    header = _unpack(_HEADER, frames[0], "header")
    magic, kind, status, count, version, copy_of, transport, token, request = header[:9]
    sender, batch, clock, step, rate, shared = header[9:]
    if magic != _MAGIC:
        raise Malformed("the header does not begin with EDP3")
    if kind not in _KINDS or status not in _STATUSES or transport not in _TRANSPORTS or count > _MOST_PARTS:
        raise Malformed(f"unknown kind {kind}, status {status}, transport {transport}, or {count} parts")
    parts, at = [], 2
    for _ in range(count):
        if at >= len(frames):
            raise Malformed("a part is missing")
        table, arrays, element, ids, rows, columns, place = _unpack(_PART, frames[at], "part")
        at += 1
        if place:
            if memory is None:
                raise Malformed("a part lies in shared memory, where nothing is shared")
            try:
                parts.append(Part(table, *memory(shared).arrays(place, ids, rows, columns)))
            except NoMemory as exc:
                raise NoMemory(shared, request) from exc
            except ValueError as exc:
                raise Malformed(f"arrays in shared memory: {exc}") from exc
            continue
        if arrays != (ids > 0) + (rows * columns > 0) or at + arrays > len(frames) or element not in _TRANSPORTS:
            raise Malformed("the arrays of a part are missing, or of an unknown kind")
        found_ids, found_rows = NO_IDS, np.empty((rows, columns), np.float32) if rows * columns == 0 else NO_ROWS
        if ids:
            found_ids = _array(frames[at], np.dtype("<i8"), ids)
            at += 1
        if rows * columns:
            found_rows = _rows(frames[at], element, rows, columns)
            at += 1
        parts.append(Part(table, found_ids, found_rows))
    if at != len(frames):
        raise Malformed(f"{len(frames) - at} frames too many")
    text = bytes(memoryview(frames[1]))
    return Message(
        _KINDS[kind], request, version, _STATUSES[status], token, copy_of, sender, batch, clock, step, rate,
        tuple(parts), text, _TRANSPORTS[transport], shared,
    )  # fmt: skip


_KINDS = {int(one): one for one in Kind}
_STATUSES = {int(one): one for one in Status}
_TRANSPORTS = {int(one): one for one in Transport}


def _narrow(rows: Floats, transport: Transport) -> NDArray[np.uint16]:
    narrowed = np.empty(rows.shape, np.uint16)
    _native.narrow(np.ascontiguousarray(rows), narrowed, transport is Transport.BFLOAT16)
    return narrowed


def _rows(frame: Buffer, element: int, rows: int, columns: int) -> Floats:
    if element == Transport.FLOAT32:
        return _array(frame, np.dtype("<f4"), rows * columns).reshape(rows, columns)
    found = np.empty((rows, columns), np.float32)
    narrowed = _array(frame, np.dtype("<u2"), rows * columns).reshape(rows, columns)
    _native.widen(narrowed, found, element == Transport.BFLOAT16)
    return found


def _unpack(layout: struct.Struct, frame: Buffer, what: str) -> tuple[Any, ...]:
    if memoryview(frame).nbytes != layout.size:
        raise Malformed(f"{what}: expected {layout.size} bytes. Received: {memoryview(frame).nbytes}")
    return layout.unpack(frame)


def _array(frame: Buffer, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    size = memoryview(frame).nbytes
    if size != count * dtype.itemsize:
        raise Malformed(f"array: expected {count} x {dtype.itemsize} bytes. Received: {size}")
    return np.frombuffer(frame, dtype)
