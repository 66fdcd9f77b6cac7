from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from elasticdl.http_server import MAX_REQUEST_BYTES, HttpRequest, HttpResponse, HttpServer

PATIENCE_S = 30.0


def answer(request: HttpRequest) -> HttpResponse:
    if request.path == "/large":
        return HttpResponse(200, b"x" * (8 << 20))
    if request.path == "/fails":
        raise RuntimeError("a fault of ours")
    return HttpResponse(200, f"{request.path} {request.headers.get('accept', '')}".encode())


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer("127.0.0.1", 0, answer, exchange_s=1.0, max_callers=4) as server:
        yield server


def call(server: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)


def read(caller: socket.socket) -> bytes:
    """Until the server hangs up."""
    received = b""
    try:
        while piece := caller.recv(1 << 20):
            received += piece
    except ConnectionResetError:
        pass
    return received


def ask(server: HttpServer, request: bytes) -> bytes:
    with call(server) as caller:
        caller.sendall(request)
        return read(caller)


def test_a_request_is_answered_and_the_connection_closed(server: HttpServer) -> None:
    received = ask(server, b"GET /metrics?x=1 HTTP/1.1\r\nHost: here\r\nAccept: text/plain\r\n\r\n")

    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert received.endswith(b"\r\n\r\n/metrics text/plain")


def test_a_request_may_come_byte_by_byte(server: HttpServer) -> None:
    with call(server) as caller:
        for byte in b"GET /a HTTP/1.0\r\n\r\n":
            caller.send(bytes([byte]))

        assert read(caller).endswith(b"/a ")


def test_a_large_answer_arrives_whole(server: HttpServer) -> None:
    assert len(ask(server, b"GET /large HTTP/1.1\r\n\r\n")) > 8 << 20


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [(b"POST / HTTP/1.1\r\n\r\n", b"405"), (b"\r\n\r\n", b"400"), (bytes(range(256)) + b"\r\n\r\n", b"400")],
)
def test_what_is_no_such_request_is_told_so(server: HttpServer, request_bytes: bytes, status: bytes) -> None:
    assert ask(server, request_bytes).startswith(b"HTTP/1.1 " + status)


def test_who_sends_too_much_or_nothing_in_time_is_hung_up_on(server: HttpServer) -> None:
    assert ask(server, b"x" * (MAX_REQUEST_BYTES + 1)) == b""
    assert ask(server, b"GET / HTTP/1.1\r\n") == b""


def test_one_caller_too_many_costs_the_oldest_its_place(server: HttpServer) -> None:
    with ExitStack() as stack:
        callers = [stack.enter_context(call(server)) for _ in range(5)]

        assert callers[0].recv(1) == b""
        callers[4].sendall(b"GET /b HTTP/1.1\r\n\r\n")
        assert read(callers[4]).endswith(b"/b ")


def test_a_fault_of_an_answer_ends_that_exchange_alone(server: HttpServer) -> None:
    assert ask(server, b"GET /fails HTTP/1.1\r\n\r\n") == b""
    assert ask(server, b"GET /c HTTP/1.1\r\n\r\n").endswith(b"/c ")


def test_a_port_that_is_taken_is_an_error(server: HttpServer) -> None:
    second = HttpServer("127.0.0.1", server.port, answer)

    with pytest.raises(OSError):
        second.start()
    second.close()
