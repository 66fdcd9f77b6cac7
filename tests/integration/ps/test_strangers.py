"""Unauthenticated connections cost a ps little, for a short time, and do not affect the job."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Iterator

import pytest
import zmq

from elasticdl.ps.wire.authentication import MAX_PENDING_HANDSHAKES, PendingHandshakes
from elasticdl.ps.wire.keys import CurveKeys
from elasticdl.ps.wire.messages import FRAME_BYTES
from tests.integration.ps.served import Served, serving
from tests.waiting import until

KEYS = CurveKeys.generate()
MIB = 1 << 20
SLACK = 8  # descriptors: connections of the job, and what a request opens


@pytest.fixture(params=[None, KEYS], ids=["plain", "curve"])
def ps(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(request.param) as served:
        yield served


def greeting(mechanism: bytes) -> bytes:
    """The greeting of ZMTP 3.0."""
    return b"\xff" + bytes(8) + b"\x7f\x03\x00" + mechanism.ljust(20, b"\0") + bytes(32)


@contextlib.contextmanager
def strangers(ps: Served, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", ps.port))) for _ in range(count)]


def send_until_closed(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(data)


def test_a_thousand_unauthenticated_connections_are_limited_in_number_and_time(ps: Served) -> None:
    with ps.connections() as worker:
        assert ps.answers(worker)
        descriptors, memory, threads = ps.descriptors, ps.memory_bytes, ps.threads

        with strangers(ps, 500) as silent, strangers(ps, 500) as half:
            for connection in half:
                send_until_closed(connection, greeting(b"PLAIN")[:20])
            assert ps.answers(worker)
            until(
                "most are hung up on",
                lambda: ps.descriptors <= descriptors + MAX_PENDING_HANDSHAKES + SLACK,
                tell=lambda: ps.descriptors,
            )
            assert ps.memory_bytes - memory < 32 * MIB
            assert ps.threads == threads
            until("all are", lambda: ps.descriptors <= descriptors + SLACK, tell=lambda: ps.descriptors)
            assert len(silent) == 500
        with ps.connections() as newcomer:
            assert ps.answers(newcomer)
        assert ps.answers(worker)


def test_a_connection_is_not_kept_open_by_a_byte_now_and_then(ps: Served) -> None:
    with ps.connections() as worker:
        assert ps.answers(worker)
        descriptors = ps.descriptors
        with strangers(ps, 4) as slow:
            until("they are connected", lambda: ps.descriptors == descriptors + 4)
            began, sent = time.monotonic(), 0

            def drip() -> bool:
                nonlocal sent
                if sent < min(64, time.monotonic() - began):  # a byte each second
                    for connection in slow:
                        send_until_closed(connection, greeting(b"PLAIN")[sent : sent + 1])
                    sent += 1
                return ps.descriptors <= descriptors

            until("all are hung up on", drip)
            assert sent < 64, "none got to the end of its greeting"


def test_a_message_of_64_mib_is_not_received(ps: Served) -> None:
    message = [b"x" * 64 * MIB] * 4
    with ps.connections() as worker, contextlib.ExitStack() as stack:
        assert ps.answers(worker)
        memory = ps.memory_bytes
        context = stack.enter_context(zmq.Context())
        for _ in range(4):
            stranger = stack.enter_context(context.socket(zmq.DEALER))
            stranger.linger = 0
            stranger.sndtimeo = 1000
            stranger.connect(f"tcp://{ps.address}")
            with contextlib.suppress(zmq.Again):  # the ps may close the connection before the last part is sent
                stranger.send_multipart(message, copy=False)
        began = time.monotonic()
        while time.monotonic() < began + 1.0:
            assert ps.answers(worker)
            assert ps.memory_bytes - memory < 32 * MIB


def test_the_size_of_a_handshake_is_bounded(ps: Served) -> None:
    mechanism = b"CURVE" if ps.keys else b"PLAIN"
    with ps.connections() as worker:
        assert ps.answers(worker)
        descriptors, memory = ps.descriptors, ps.memory_bytes
        with strangers(ps, MAX_PENDING_HANDSHAKES) as talkative:
            for connection in talkative:
                connection.settimeout(2.0)
                # A command that is as long as is allowed, and never ends.
                send_until_closed(connection, greeting(mechanism) + b"\x06" + FRAME_BYTES.to_bytes(8, "big"))
                send_until_closed(connection, bytes(FRAME_BYTES // 4))
            assert ps.answers(worker)
            assert ps.memory_bytes - memory < MAX_PENDING_HANDSHAKES * FRAME_BYTES + 32 * MIB
            until("all are hung up on", lambda: ps.descriptors <= descriptors + SLACK)
        with strangers(ps, 1) as (loud,):
            loud.sendall(greeting(mechanism) + b"\x06" + (64 * MIB).to_bytes(8, "big"))
            loud.settimeout(30.0)
            with contextlib.suppress(ConnectionResetError):
                while loud.recv(1000):  # its own greeting, then the end
                    pass
        assert ps.answers(worker)


def test_old_versions_of_the_protocol_do_not_get_past_the_handshake(ps: Served) -> None:
    with ps.connections() as worker, strangers(ps, 2) as (first, second):
        assert ps.answers(worker)
        first.sendall(b"\x01\x00" + b"\x05\x00abcd" * 100)
        second.sendall(b"\xff" + bytes(8) + b"\x01\x01\x05" + b"\x00\x00" + b"\x00\x04abcd" * 100)
        for connection in (first, second):
            connection.settimeout(30.0)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(1000):
                    pass
        assert ps.answers(worker)


def test_a_ps_without_descriptors_continues_and_accepts_connections_later(ps: Served) -> None:
    with ps.connections() as worker:
        assert ps.answers(worker)
        before = resource.prlimit(ps.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(ps.pid, resource.RLIMIT_NOFILE, (ps.descriptors + 2, before[1]))
        with strangers(ps, 20), ps.connections(1.0) as late:
            until("there are none left", lambda: ps.descriptors >= resource.prlimit(ps.pid, resource.RLIMIT_NOFILE)[0])
            began = time.monotonic()
            while time.monotonic() < began + 1.0:
                assert ps.answers(worker)
            assert late.addresses
        with ps.connections() as newcomer:
            assert ps.answers(newcomer)
            assert ps.answers(worker)


def test_pending_connections_are_counted_until_they_are_authenticated_or_closed() -> None:
    newcomers = PendingHandshakes(2, 5.0)

    assert [newcomers.accept(fd, 0.0) for fd in (7, 8, 9)] == [True, True, False]
    newcomers.close(9)
    newcomers.complete(0.0)
    assert newcomers.accept(9, 1.0), "one of them is in"
    assert not newcomers.accept(10, 1.0)
    newcomers.close(10)
    assert newcomers.accept(10, 5.5), "who is still here from the beginning is no newcomer"
    assert not newcomers.accept(11, 5.5)
