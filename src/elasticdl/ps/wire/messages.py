"""The messages between workers and ps: multipart messages of a fixed header and raw arrays. Pure.

A message is a text frame after a header frame, then for each part a frame that describes it and frames with its
arrays as they are in memory (little-endian). No frame is larger than FRAME_BYTES, so a socket can refuse larger ones
before it allocates memory for them: a large array is sent in several frames. Arrays are not copied into frames, and not
copied from one if a single frame is the whole array. Arrays in memory that both sides share are not sent: the part has
their offset, see shared_memory.py.

The receiver checks the token of a message first (`read_token`), then decodes it. Decoding compares every size with the
bytes that have come before it allocates anything, so a message costs its receiver at most three times its own size: the
message, an array that is concatenated from frames, and rows of 16 bits as float32.
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

_MAGIC = b"EDP4"
# magic, kind, status, parts, map version, backup of, dtype, token, request, sender, push number, clock, step, rate,
# memory
_HEADER = struct.Struct("<4sBBHIHH16sQQQQQdQ")
_PART = struct.Struct("<HBxIIIQ")  # table, dtype of the rows, ids, rows, columns, offset
_MAX_PARTS = 4096
FRAME_BYTES = 4 << 20  # at most; a multiple of every element's size


class MessageKind(IntEnum):
    DECLARE = 1  # tables, as JSON in `text`
    PULL = 2
    PUSH = 3
    PULL_EXISTING = 4  # a pull that makes no rows
    STATUS = 5
    REPLY = 6
    LOAD = 7  # rows of slots that move; for each table a part with ids and values, then one with their state
    TAKE_OVER = 8  # own the slots from now on; the map is in `text`, the applied pushes are the ids of the one part
    INSERT = 9  # insert rows with these values where there are none
    DROP = 10  # drop the rows of the slots that are the ids of the one part
    READ_STRIPE = 12  # all rows of a stripe of a table: its number is the id of the one part
    OPEN_MEMORY = 11  # open my shared memory; its process and file are in `text`
    SNAPSHOT = 20  # copy the rows that changed since the base in `text`; see snapshots/writer.py
    WRITE_SNAPSHOT = 21  # write that copy to the disk; the reply comes at once and says whether it is done


class ReplyStatus(IntEnum):
    OK = 0
    MOVED = 1  # the slots have another owner; the map is in `text`
    REFUSED = 2  # the request is wrong; why is in `text`
    DENIED = 3  # wrong token
    STALE = 4  # the push was computed with values that are too old; nothing of it was applied
    MEMORY_NOT_FOUND = 5  # the memory cannot be opened here: send the arrays


class WireDtype(IntEnum):
    """The dtype of rows and gradients in a message."""

    FLOAT32 = 0
    FLOAT16 = 1
    BFLOAT16 = 2


class MalformedMessage(ValueError):
    """The frames are not a message of this protocol."""


class SharedMemoryNotFound(LookupError):
    """The shared memory that a request names cannot be opened here, or is gone."""

    def __init__(self, name: int, request: int = 0) -> None:
        super().__init__(f"memory {name:016x} cannot be opened here")
        self.request = request


class SharedArrays(Protocol):
    """Memory that both sides see, such as a `SharedMemoryView`."""

    def arrays(self, offset: int, ids: int, rows: int, columns: int) -> tuple[Ids, Floats]: ...


class TablePart(NamedTuple):
    """The part of a message about one table: a reply has rows only, a pull has ids and perhaps a buffer for rows."""

    table: int
    ids: Ids
    rows: Floats
    offset: int = 0  # of both arrays in the shared memory; 0: they are sent, as the receiver always sees it


class PsMessage(NamedTuple):
    kind: MessageKind
    request: int
    map_version: int = 0  # of the slot map it was made with
    status: ReplyStatus = ReplyStatus.OK
    token: bytes = bytes(16)
    backup_of: int = 0  # N + 1: for the backup that the receiver holds of ps-N; 0: for its own rows
    sender: int = 0  # of a push: a logical rank
    push_number: int = 0  # counted from 1 by its sender; 0: not counted
    clock: int = 0  # in a reply that of the ps; in a push that of the pull it was computed with; 0: unknown
    step: int = 0
    learning_rate: float = 0.0
    parts: tuple[TablePart, ...] = ()
    text: bytes = b""
    dtype: WireDtype = WireDtype.FLOAT32  # of the rows in this message, and in the reply to it
    memory: int = 0  # the shared memory of the arrays that are not sent


NO_IDS: Ids = np.empty(0, np.int64)
NO_ROWS: Floats = np.empty((0, 0), np.float32)


def encode_message(message: PsMessage) -> list[Buffer]:
    dtype = message.dtype
    header = _HEADER.pack(
        _MAGIC, message.kind, message.status, len(message.parts), message.map_version, message.backup_of, dtype,
        message.token, message.request, message.sender, message.push_number, message.clock, message.step,
        message.learning_rate, message.memory,
    )  # fmt: skip
    frames: list[Buffer] = [header, message.text]
    for table, ids, rows, offset in message.parts:
        frames.append(_PART.pack(table, dtype, len(ids), *rows.shape, offset))
        if not offset:
            frames += _split_frames(ids)
            frames += _split_frames(rows if dtype is WireDtype.FLOAT32 else _narrow_rows(rows, dtype))
    return frames


def read_token(frames: Sequence[Buffer]) -> tuple[bytes, int]:
    """Reads the token of a message and the number of its request, and nothing else. Raises MalformedMessage."""
    header = _read_header(frames)
    return header[7], header[8]


def decode_message(frames: Sequence[Buffer], memory: Callable[[int], SharedArrays] | None = None) -> PsMessage:
    """Decodes a message. Raises MalformedMessage, and SharedMemoryNotFound if `memory` does."""
    _, kind, status, count, version, backup_of, dtype, token, request, *numbers = _read_header(frames)
    sender, push_number, clock, step, rate, memory_name = numbers
    if kind not in _KINDS or status not in _STATUSES or dtype not in _DTYPES or count > _MAX_PARTS:
        raise MalformedMessage(f"unknown kind {kind}, status {status}, dtype {dtype}, or {count} parts")
    if memoryview(frames[1]).nbytes > FRAME_BYTES:
        raise MalformedMessage(f"text: expected {FRAME_BYTES} bytes at most. Received: {memoryview(frames[1]).nbytes}")
    frame_reader = _FrameReader(frames[2:])
    parts = []
    for _ in range(count):
        table, part_dtype, ids, rows, columns, offset = _unpack(_PART, frame_reader.next("a part"), "part")
        if part_dtype not in _DTYPES:
            raise MalformedMessage(f"rows of an unknown dtype: {part_dtype}")
        if not offset:
            arrays = frame_reader.array(np.dtype("<i8"), ids), _read_rows(frame_reader, part_dtype, rows, columns)
        elif memory is None:
            raise MalformedMessage("a part in shared memory, but no memory is shared")
        else:
            try:
                arrays = memory(memory_name).arrays(offset, ids, rows, columns)
            except SharedMemoryNotFound as exc:
                raise SharedMemoryNotFound(memory_name, request) from exc
            except ValueError as exc:
                raise MalformedMessage(f"arrays in shared memory: {exc}") from exc
        parts.append(TablePart(table, *arrays))
    frame_reader.end()
    text = bytes(memoryview(frames[1]))
    return PsMessage(
        _KINDS[kind], request, version, _STATUSES[status], token, backup_of, sender, push_number, clock, step, rate,
        tuple(parts), text, _DTYPES[dtype], memory_name,
    )  # fmt: skip


_KINDS = {int(member): member for member in MessageKind}
_STATUSES = {int(member): member for member in ReplyStatus}
_DTYPES = {int(member): member for member in WireDtype}


def _narrow_rows(rows: Floats, dtype: WireDtype) -> NDArray[np.uint16]:
    narrowed = np.empty(rows.shape, np.uint16)
    _native.narrow(np.ascontiguousarray(rows), narrowed, dtype is WireDtype.BFLOAT16)
    return narrowed


class _FrameReader:
    """The frames of the parts, in their order."""

    def __init__(self, frames: Sequence[Buffer]) -> None:
        self._frames = frames
        self._next = 0

    def next(self, name: str) -> Buffer:
        if self._next == len(self._frames):
            raise MalformedMessage(f"{name} is missing")
        self._next += 1
        return self._frames[self._next - 1]

    def array(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Reads an array of `count` elements: a view of its frame, or the concatenation of several."""
        left = count * dtype.itemsize
        frames = []
        while left:
            frame = self.next("an array, or the end of one,")
            size = memoryview(frame).nbytes
            if size != min(left, FRAME_BYTES):
                raise MalformedMessage(f"array: expected {min(left, FRAME_BYTES)} bytes. Received: {size}")
            frames.append(np.frombuffer(frame, dtype))
            left -= size
        if len(frames) == 1:
            return frames[0]
        return np.concatenate(frames) if frames else np.empty(0, dtype)

    def end(self) -> None:
        if self._next != len(self._frames):
            raise MalformedMessage(f"{len(self._frames) - self._next} frames too many")


def _read_header(frames: Sequence[Buffer]) -> tuple[Any, ...]:
    if len(frames) < 2:
        raise MalformedMessage(f"expected a header and a text. Received: {len(frames)} frames")
    header = _unpack(_HEADER, frames[0], "header")
    if header[0] != _MAGIC:
        raise MalformedMessage("the header does not begin with EDP4")
    return header


def _split_frames(array: NDArray[Any]) -> list[Buffer]:
    """Splits the bytes of an array into frames of at most FRAME_BYTES, which are views of it."""
    if array.nbytes <= FRAME_BYTES:
        return [array] if array.nbytes else []
    buffer = np.ascontiguousarray(array).data.cast("B")
    return [buffer[start : start + FRAME_BYTES] for start in range(0, len(buffer), FRAME_BYTES)]


def _read_rows(frames: _FrameReader, dtype: int, rows: int, columns: int) -> Floats:
    if dtype == WireDtype.FLOAT32:
        return frames.array(np.dtype("<f4"), rows * columns).reshape(rows, columns)
    narrowed = frames.array(np.dtype("<u2"), rows * columns).reshape(rows, columns)
    rows_read = np.empty((rows, columns), np.float32)
    if rows_read.size:
        _native.widen(narrowed, rows_read, dtype == WireDtype.BFLOAT16)
    return rows_read


def _unpack(layout: struct.Struct, frame: Buffer, name: str) -> tuple[Any, ...]:
    if memoryview(frame).nbytes != layout.size:
        raise MalformedMessage(f"{name}: expected {layout.size} bytes. Received: {memoryview(frame).nbytes}")
    return layout.unpack(frame)
