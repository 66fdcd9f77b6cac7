from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest
import torch

from elasticdl.collective import frames
from elasticdl.collective.frames import Frame

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
    torch.uint64, torch.uint32, torch.uint16, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip

MOST_BYTES = 1 << 30


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(5.0)
    with ours, theirs:
        yield ours, theirs


def round_trip(ends: tuple[socket.socket, socket.socket], frame: Frame) -> Frame:
    ours, theirs = ends
    sender = threading.Thread(target=theirs.sendall, args=(b"".join(frames.split_frame(frame)),))
    sender.start()
    received = frames.receive_frame(ours, MOST_BYTES)
    sender.join()
    return received


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_of_any_dtype_arrives_bit_for_bit(
    ends: tuple[socket.socket, socket.socket], dtype: torch.dtype
) -> None:
    tensor = torch.randn(3, 5).mul(50).to(dtype)
    scalar = torch.tensor(7).to(dtype)
    empty = torch.empty(0, 4, dtype=dtype)

    received = round_trip(ends, Frame({"step": 3}, {"a": tensor, "scalar": scalar, "empty": empty}))

    assert received.header == {"step": 3}
    for name, sent in {"a": tensor, "scalar": scalar, "empty": empty}.items():
        assert received.tensors[name].dtype == dtype
        assert received.tensors[name].shape == sent.shape
        assert bytes(frames.tensor_bytes(received.tensors[name])) == bytes(frames.tensor_bytes(sent))


def test_nan_and_minus_zero_keep_their_bits(ends: tuple[socket.socket, socket.socket]) -> None:
    tensor = torch.tensor([float("nan"), -0.0, float("inf")])

    received = round_trip(ends, Frame({}, {"a": tensor})).tensors["a"]

    assert bytes(frames.tensor_bytes(received)) == bytes(frames.tensor_bytes(tensor))


def test_a_tensor_larger_than_any_socket_buffer_arrives(ends: tuple[socket.socket, socket.socket]) -> None:
    tensor = torch.arange(2_000_000)

    assert torch.equal(round_trip(ends, Frame({}, {"a": tensor})).tensors["a"], tensor)


@pytest.mark.parametrize(
    "text",
    [
        b"GET / HTTP/1.1",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"header": {}, "tensors": [["a", "object", [1]]]}',
        b'{"header": {}, "tensors": [["a", "float32", [-1]]]}',
        b'{"header": {}, "tensors": [["a", "float32", ["x"]]]}',
        b'{"header": {}, "tensors": 7}',
        b'{"header": 3, "tensors": []}',
        b'{"header": {}, "tensors": [["a", "float32", [Infinity]]]}',
        b'{"header": {}, "tensors": [["a", "float32", [1.5]]]}',
        b'{"header": {}, "tensors": [["a", "uint8", [1073741824, 2]]]}',
        b'{"header": {}, "tensors": [["a", "uint8", [1000000000]], ["b", "uint8", [1000000000]]]}',
        b'{"header": {}, "tensors": [["a", "uint8", [4611686018427387904, 4611686018427387904]]]}',
        b'{"header": {}, "tensors": [["a", "uint8", [0, 9223372036854775808]]]}',
        b"[" * 100_000,
    ],
)
def test_a_malformed_header_is_refused(ends: tuple[socket.socket, socket.socket], text: bytes) -> None:
    ours, theirs = ends
    theirs.sendall(struct.pack("!I", len(text)) + text)

    with pytest.raises(ConnectionError):
        frames.receive_frame(ours, MOST_BYTES)


def test_a_frame_that_announces_too_many_bytes_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(b"SSH-2.0-stranger")

    with pytest.raises(ConnectionError, match="not a stream of ElasticDL"):
        frames.receive_frame(ours, MOST_BYTES)


def test_a_stream_that_ends_in_a_tensor_is_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    text = frames.encode_frame(Frame({}, {"a": torch.zeros(100)}))
    theirs.sendall(struct.pack("!I", len(text)) + text + bytes(17))
    theirs.shutdown(socket.SHUT_WR)

    with pytest.raises(ConnectionError, match="closed"):
        frames.receive_frame(ours, MOST_BYTES)
