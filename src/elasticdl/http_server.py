"""A small HTTP server for probes and metrics, with the limits of listener.py: unknown callers can only keep it busy."""

from __future__ import annotations

import logging
import selectors
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

from elasticdl.listener import Caller, Conversation, Listener, receive_bytes

TEXT = "text/plain; charset=utf-8"
MAX_REQUEST_BYTES = 8 << 10
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}

_log = logging.getLogger(__name__)


class HttpRequest(NamedTuple):
    """A request. Names of headers are in lower case."""

    path: str
    headers: Mapping[str, str]


class HttpResponse(NamedTuple):
    status: int
    body: bytes
    content_type: str = TEXT

    @classmethod
    def from_problem(cls, problem: str, ok: str = "ok") -> HttpResponse:
        """Status 503 with the problem, or 200 with the text `ok` if there is none."""
        return cls(503 if problem else 200, f"{problem or ok}\n".encode())


class HttpServer:
    """Answers GET requests between `start` and `close`, or in a `with` block, in a thread of its own.

    `answer` must not block. Port 0 means any free port.
    """

    def __init__(
        self,
        address: str,
        port: int,
        answer: Callable[[HttpRequest], HttpResponse],
        *,
        exchange_s: float = 5.0,
        max_callers: int = 32,
    ) -> None:
        self._answer = answer
        self._listener = Listener(
            address,
            port,
            self._exchange,
            _log_failure,
            name="http",
            conversation_s=exchange_s,
            max_callers=max_callers,
        )

    def start(self) -> None:
        """Raises OSError if it cannot listen on the port."""
        self._listener.start()

    @property
    def port(self) -> int:
        """The port it listens on; before `start`, the one it was constructed with."""
        return self._listener.port

    def close(self) -> None:
        self._listener.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exchange(self, caller: Caller) -> Conversation:
        """Reads one request and sends the response."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += yield from receive_bytes(caller.connection, MAX_REQUEST_BYTES + 1 - len(received))
            if len(received) > MAX_REQUEST_BYTES:
                return None
        unsent = memoryview(_encode(_respond(received, self._answer)))
        while unsent:
            try:
                unsent = unsent[caller.connection.send(unsent) :]
            except BlockingIOError:
                yield selectors.EVENT_WRITE
        return None


def _log_failure(exc: Exception) -> None:
    if not isinstance(exc, OSError):  # slow callers and those that hang up are no errors of the server
        _log.error("cannot answer an HTTP request", exc_info=exc)


def _respond(received: bytes, answer: Callable[[HttpRequest], HttpResponse]) -> HttpResponse:
    head, *lines = received.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    words = head.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return HttpResponse(400, b"expected an HTTP/1 request\n")
    if words[0] != "GET":
        return HttpResponse(405, b"only GET is allowed\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return answer(HttpRequest(words[1].partition("?")[0], headers))


def _encode(answer: HttpResponse) -> bytes:
    reason = _REASONS.get(answer.status, "Service Unavailable")
    head = (
        f"HTTP/1.1 {answer.status} {reason}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + answer.body
