"""Frames that a newcomer reads from its donor: states and updates, or the one declared error; no memory for bytes that
were not received."""

from __future__ import annotations

import io
from collections.abc import Iterator

import torch

from elasticdl.collective import frames
from elasticdl.collective.frames import Frame
from elasticdl.collective.state_transfer import is_state_frame

MAX_BYTES = 1 << 20  # of the tensors of one frame
_PIECE_BYTES = 1000


class _Stream:
    """A connection whose other end sends `data` and closes it."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def recv_into(self, buffer: memoryview, /) -> int:
        return self._data.readinto(buffer[:_PIECE_BYTES])

    def tell(self) -> int:
        return self._data.tell()


def fuzz_one(data: bytes) -> None:
    stream = _Stream(data)
    try:
        while True:
            before = stream.tell()
            frame = frames.receive_frame(stream, MAX_BYTES)
            size = sum(tensor.numel() * tensor.element_size() for tensor in frame.tensors.values())
            assert size <= min(MAX_BYTES, stream.tell() - before), "tensors that were not sent"
            if is_state_frame(frame):
                assert isinstance(frame.header["step"], int)
    except ConnectionError:
        pass


def seeds() -> Iterator[bytes]:
    state = {"kind": "state", "step": 3, "records": 24, "meta": {"phase": 0, "losses": {}}}
    update = {"kind": "update", "step": 4, "enter": 0, "update": {"records": 8}, "is_first": True, "from": 196608}
    tensors = {"model/w": torch.arange(6.0).view(2, 3), "optimizer/0/step": torch.tensor(3.0), "e": torch.empty(0, 2)}
    for frame in (
        Frame(state, tensors),
        Frame(update, {"gradient": torch.ones(7)}),
        Frame({"kind": "waiting"}, {}),
        Frame({"kind": "gave up", "why": "too slow"}, {}),
    ):
        yield b"".join(frames.split_frame(frame))
    yield b"".join(b"".join(frames.split_frame(Frame(header, {}))) for header in (state, update | {"enter": 5}))
