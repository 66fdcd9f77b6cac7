"""Sends tensors over a stream: a JSON header and raw bytes, nothing that could run code."""

from __future__ import annotations

import json
import math
import os
import struct
from dataclasses import dataclass
from typing import Any, Protocol

import torch

_LENGTH = struct.Struct("!I")
_MAX_HEADER_BYTES = 64 << 20
_PART_BYTES = 1 << 20
MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # of this machine: no state is larger
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
        torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
        torch.uint64, torch.uint32, torch.uint16, torch.float8_e4m3fn, torch.float8_e5m2,
    )
}  # fmt: skip


class ByteStream(Protocol):
    """A socket, or an object that is read like one."""

    def recv_into(self, buffer: memoryview, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: `header` holds JSON values, `tensors` the tensors that belong to it."""

    header: dict[str, Any]
    tensors: dict[str, torch.Tensor]


def encode_frame(frame: Frame) -> bytes:
    """Encode the header, with names, types and shapes of the tensors."""
    described = [
        [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for name, tensor in frame.tensors.items()
    ]
    return json.dumps({"header": frame.header, "tensors": described}).encode()


def decode_frame(text: bytes, max_bytes: int) -> Frame:
    """Decode a header; the frame's tensors have no values yet. Raises ConnectionError if `text` is not a header.

    A frame whose tensors have more than `max_bytes` is refused before anything is allocated for it.
    """
    try:
        document = json.loads(text)
        described = {
            str(name): (_DTYPES[dtype], [_check_size(d) for d in shape]) for name, dtype, shape in document["tensors"]
        }
        total = sum(math.prod(shape) * dtype.itemsize for dtype, shape in described.values())
        if total > max_bytes:
            raise ConnectionError(f"tensors of {total} bytes where {max_bytes} are the most")
        tensors = {name: torch.empty(shape, dtype=dtype) for name, (dtype, shape) in described.items()}
        return Frame(dict(document["header"]), tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as exc:
        raise ConnectionError(f"a header that cannot be read: {exc}") from exc


def _check_size(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a size")
    return value


def split_frame(frame: Frame) -> list[memoryview]:
    """The pieces to send, in order. Each keeps alive only the memory that it is a view of."""
    text = encode_frame(frame)
    head = memoryview(_LENGTH.pack(len(text)) + text)
    return [head, *(tensor_bytes(tensor) for tensor in frame.tensors.values() if tensor.numel())]


def receive_frame(connection: ByteStream, max_bytes: int) -> Frame:
    """Receive the next frame, with tensors of at most `max_bytes`.

    Raises ConnectionError if the stream ends, or is not a stream of ElasticDL.
    """
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))
    if length > _MAX_HEADER_BYTES:
        raise ConnectionError(f"a header of {length} bytes: not a stream of ElasticDL")
    frame = decode_frame(_receive_exactly(connection, length), max_bytes)
    for tensor in frame.tensors.values():
        if tensor.numel():
            _receive_into(connection, tensor_bytes(tensor))
    return frame


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the host, without a copy."""
    array: Any = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


def _receive_exactly(connection: ByteStream, count: int) -> bytes:
    """Receive `count` bytes. Allocates as bytes come: a peer may announce a length that it never sends."""
    received = bytearray()
    while len(received) < count:
        part = bytearray(min(count - len(received), _PART_BYTES))
        _receive_into(connection, memoryview(part))
        received += part
    return bytes(received)


def _receive_into(connection: ByteStream, view: memoryview) -> None:
    while view:
        received = connection.recv_into(view)
        if not received:
            raise ConnectionError("the peer closed the stream")
        view = view[received:]
