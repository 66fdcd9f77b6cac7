"""Frames that reach a ps or a worker: a message, or one of the two declared errors, and no room for what is not there.

An input is a list of frames, each with its length before it (16 bits, little-endian); the last may be cut short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from elasticdl.ps import wire
from elasticdl.ps.shared import Memory, View
from elasticdl.ps.wire import NO_IDS, NO_ROWS, Kind, Malformed, Message, NoMemory, Part, Transport

_SHARED = 0x5EED  # the name of the memory that both sides see, in every input
_SHARED_BYTES = 1 << 16


def fuzz_one(data: bytes) -> None:
    frames = split(data)
    try:
        token, request = wire.token_of(frames)
    except Malformed:
        token, request = b"", -1
    try:
        message = wire.decode(frames, _memory)
    except (Malformed, NoMemory):
        return
    assert (message.token, message.request) == (token, request)
    sent = sum(len(frame) for frame in frames)
    for part in message.parts:
        assert part.ids.dtype == np.int64 and part.ids.ndim == 1
        assert part.rows.dtype == np.float32 and part.rows.ndim == 2
        assert part.ids.nbytes <= sent + _SHARED_BYTES and part.rows.nbytes <= 2 * sent + _SHARED_BYTES
    if not message.memory:  # what lies in shared memory is not sent, and arrives with no place of its own
        again = wire.decode([bytes(frame) for frame in wire.encode(message)])
        assert again._replace(parts=(), rate=0.0) == message._replace(parts=(), rate=0.0)
        assert [part.ids.tolist() for part in again.parts] == [part.ids.tolist() for part in message.parts]
        assert [part.rows.shape for part in again.parts] == [part.rows.shape for part in message.parts]


def split(data: bytes) -> list[bytes]:
    frames, at = [], 0
    while at + 2 <= len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "little")
        frames.append(data[at + 2 : end])
        at = end
    return frames


def join(frames: Sequence[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(2, "little") + frame for frame in frames)


@cache
def _view() -> tuple[Memory, View]:
    memory = Memory(_SHARED_BYTES)
    return memory, View(memory.offer)


def _memory(name: int) -> View:
    if name != _SHARED:
        raise NoMemory(name)
    return _view()[1]


def seeds() -> Iterator[bytes]:
    ids, rows = np.arange(3, dtype=np.int64), np.ones((3, 2), np.float32)
    part = Part(0, ids, rows)
    for message in (
        Message(Kind.STATUS, 1),
        Message(Kind.DECLARE, 2, text=b"[]", token=bytes(range(16))),
        Message(Kind.PULL, 3, parts=(Part(0, ids, NO_ROWS), Part(1, NO_IDS, NO_ROWS))),
        Message(Kind.PUSH, 4, sender=1, batch=7, rate=0.5, step=7, parts=(part,)),
        Message(Kind.PUSH, 5, parts=(part,), transport=Transport.FLOAT16),
        Message(Kind.PUSH, 6, parts=(part, part), transport=Transport.BFLOAT16),
        Message(Kind.LOAD, 7, parts=(part, Part(0, NO_IDS, np.empty((3, 0), np.float32)))),
        Message(Kind.PUSH, 8, parts=(part._replace(at=64),), memory=_SHARED),
    ):
        yield join([bytes(frame) for frame in wire.encode(message)])
