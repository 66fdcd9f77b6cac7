"""A small HTTP server for probes and metrics, bounded as listener.py is: strangers can make it busy, nothing more."""

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
    """What a caller asked for. Names of headers are in lower case."""

    path: str
    headers: Mapping[str, str]


class HttpResponse(NamedTuple):
    status: int
    body: bytes
    content_type: str = TEXT

    @classmethod
    def from_problem(cls, trouble: str, fine: str = "ok") -> HttpResponse:
        """200 and `fine` without trouble, else 503 and what it is."""
        return cls(503 if trouble else 200, f"{trouble or fine}\n".encode())


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
        most_callers: int = 32,
    ) -> None:
        self._answer = answer
        self._listener = Listener(
            address,
            port,
            self._exchange,
            _log_failure,
            name="http",
            conversation_s=exchange_s,
            most_callers=most_callers,
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
        """One request and its answer."""
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
    if not isinstance(exc, OSError):  # callers are slow, or hang up: that is theirs
        _log.error("an answer over HTTP failed", exc_info=exc)


def _respond(received: bytes, answer: Callable[[HttpRequest], HttpResponse]) -> HttpResponse:
    head, *lines = received.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    words = head.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return HttpResponse(400, b"expected a request of HTTP/1\n")
    if words[0] != "GET":
        return HttpResponse(405, b"there is only GET\n")
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
