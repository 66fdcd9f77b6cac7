"""Frames that a ps or a worker receives: a message, or one of the two declared errors; no memory for missing bytes.

An input is a list of frames, each after its length (16 bits, little-endian); the last may be truncated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from elasticdl.ps.wire import messages
from elasticdl.ps.wire.messages import (
    NO_IDS,
    NO_ROWS,
    MalformedMessage,
    MessageKind,
    PsMessage,
    SharedMemoryNotFound,
    TablePart,
    WireDtype,
)
from elasticdl.ps.wire.shared_memory import SharedMemory, SharedMemoryView

_SHARED = 0x5EED  # the name of the shared memory in every input
_SHARED_BYTES = 1 << 16


def fuzz_one(data: bytes) -> None:
    frames = split(data)
    try:
        token, request = messages.read_token(frames)
    except MalformedMessage:
        token, request = b"", -1
    try:
        message = messages.decode_message(frames, _memory)
    except (MalformedMessage, SharedMemoryNotFound):
        return
    assert (message.token, message.request) == (token, request)
    sent = sum(len(frame) for frame in frames)
    for part in message.parts:
        assert part.ids.dtype == np.int64 and part.ids.ndim == 1
        assert part.rows.dtype == np.float32 and part.rows.ndim == 2
        assert part.ids.nbytes <= sent + _SHARED_BYTES and part.rows.nbytes <= 2 * sent + _SHARED_BYTES
    if not message.memory:  # rows in shared memory are not sent
        again = messages.decode_message([bytes(frame) for frame in messages.encode_message(message)])
        assert again._replace(parts=(), learning_rate=0.0) == message._replace(parts=(), learning_rate=0.0)
        assert [part.ids.tolist() for part in again.parts] == [part.ids.tolist() for part in message.parts]
        assert [part.rows.shape for part in again.parts] == [part.rows.shape for part in message.parts]


def split(data: bytes) -> list[bytes]:
    frames, offset = [], 0
    while offset + 2 <= len(data):
        end = offset + 2 + int.from_bytes(data[offset : offset + 2], "little")
        frames.append(data[offset + 2 : end])
        offset = end
    return frames


def join(frames: Sequence[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(2, "little") + frame for frame in frames)


@cache
def _view() -> tuple[SharedMemory, SharedMemoryView]:
    memory = SharedMemory.create(_SHARED_BYTES)
    return memory, SharedMemoryView.open(memory.handle)


def _memory(name: int) -> SharedMemoryView:
    if name != _SHARED:
        raise SharedMemoryNotFound(name)
    return _view()[1]


def seeds() -> Iterator[bytes]:
    ids, rows = np.arange(3, dtype=np.int64), np.ones((3, 2), np.float32)
    part = TablePart(0, ids, rows)
    for message in (
        PsMessage(MessageKind.STATUS, 1),
        PsMessage(MessageKind.DECLARE, 2, text=b"[]", token=bytes(range(16))),
        PsMessage(MessageKind.PULL, 3, parts=(TablePart(0, ids, NO_ROWS), TablePart(1, NO_IDS, NO_ROWS))),
        PsMessage(MessageKind.PUSH, 4, sender=1, push_number=7, learning_rate=0.5, step=7, parts=(part,)),
        PsMessage(MessageKind.PUSH, 5, parts=(part,), dtype=WireDtype.FLOAT16),
        PsMessage(MessageKind.PUSH, 6, parts=(part, part), dtype=WireDtype.BFLOAT16),
        PsMessage(MessageKind.LOAD, 7, parts=(part, TablePart(0, NO_IDS, np.empty((3, 0), np.float32)))),
        PsMessage(MessageKind.PUSH, 8, parts=(part._replace(offset=64),), memory=_SHARED),
    ):
        yield join([bytes(frame) for frame in messages.encode_message(message)])
