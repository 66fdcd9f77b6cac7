"""Tensors on a stream: a JSON header and raw bytes, nothing that could run code."""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass
from typing import Any

import torch

_LENGTH = struct.Struct("!I")
_MAX_HEADER_BYTES = 64 << 20
_MAX_GREETING_BYTES = 4096
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
        torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
        torch.uint64, torch.uint32, torch.uint16, torch.float8_e4m3fn, torch.float8_e5m2,
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: `header` holds JSON values, `tensors` what goes with it."""

    header: dict[str, Any]
    tensors: dict[str, torch.Tensor]


def encode(frame: Frame) -> bytes:
    """The header, and what is needed to receive the tensors."""
    described = [
        [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for name, tensor in frame.tensors.items()
    ]
    return json.dumps({"header": frame.header, "tensors": described}).encode()


def decode(text: bytes) -> Frame:
    """The frame that was described, its tensors still empty. Raises ConnectionError for anything else."""
    try:
        document = json.loads(text)
        tensors = {
            str(name): torch.empty([int(d) for d in shape], dtype=_DTYPES[dtype])
            for name, dtype, shape in document["tensors"]
        }
        return Frame(dict(document["header"]), tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as exc:
        raise ConnectionError(f"a header that cannot be read: {exc}") from exc


def send(connection: socket.socket, frame: Frame) -> None:
    text = encode(frame)
    connection.sendall(_LENGTH.pack(len(text)) + text)
    for tensor in frame.tensors.values():
        if tensor.numel():
            connection.sendall(raw(tensor))


def receive(connection: socket.socket) -> Frame:
    """The next frame. Raises ConnectionError where the stream ends or is no stream of ours."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > _MAX_HEADER_BYTES:
        raise ConnectionError(f"a header of {length} bytes: not a stream of ElasticDL")
    frame = decode(_exactly(connection, length))
    for tensor in frame.tensors.values():
        if tensor.numel():
            _fill(connection, raw(tensor))
    return frame


def receive_greeting(connection: socket.socket) -> dict[str, Any]:
    """The header of a first frame, from someone who has not shown a token yet: short, and without tensors."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > _MAX_GREETING_BYTES:
        raise ConnectionError(f"a greeting of {length} bytes: not a worker of ElasticDL")
    return decode_greeting(_exactly(connection, length))


def decode_greeting(text: bytes) -> dict[str, Any]:
    """The header of a frame that describes no tensors. Raises ConnectionError for anything else."""
    try:
        document = json.loads(text)
        if document["tensors"]:
            raise ConnectionError("a greeting with tensors: not a worker of ElasticDL")
        return dict(document["header"])
    except (KeyError, TypeError, ValueError) as exc:
        raise ConnectionError(f"a greeting that cannot be read: {exc}") from exc


def raw(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the host, without a copy."""
    array: Any = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


def _exactly(connection: socket.socket, count: int) -> bytes:
    buffer = bytearray(count)
    _fill(connection, memoryview(buffer))
    return bytes(buffer)


def _fill(connection: socket.socket, view: memoryview) -> None:
    while view:
        received = connection.recv_into(view)
        if not received:
            raise ConnectionError("the peer closed the stream")
        view = view[received:]
