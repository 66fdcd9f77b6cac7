"""A ps on its socket: a router in front, a few threads behind it, holdings in the middle.

ZeroMQ moves messages between router and threads without Python; the threads release the GIL in the native core.
So requests of several workers are served at once, and a request costs Python some tens of microseconds.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable, Mapping
from hashlib import blake2b
from types import MappingProxyType

import zmq

from elasticdl.ps import wire
from elasticdl.ps.holdings import Holdings
from elasticdl.ps.keys import Door, Keys
from elasticdl.ps.store import Refused
from elasticdl.ps.wire import Kind, Malformed, Message, Status

Answer = Callable[[Message], Message]

_log = logging.getLogger(__name__)

# Frames below this are copied into the message: cheaper than keeping track of who frees them.
COPY_BYTES = 1 << 16


def token_digest(token: str) -> bytes:
    """What a message carries of the job's token."""
    return blake2b(token.encode(), digest_size=16).digest()


class Server:
    """Listens from its construction to `close`."""

    def __init__(
        self,
        holdings: Holdings,
        token: str,
        address: str,
        *,
        threads: int,
        port: int = 0,
        answers: Mapping[Kind, Answer] = MappingProxyType({}),
        keys: Keys | None = None,
    ) -> None:
        """`answers` are of kinds that others answer than the holdings; with `keys` nobody else gets a word in."""
        self._holdings = holdings
        self._answers = answers
        self._token = token_digest(token)
        self._context = zmq.Context()
        self._front = self._context.socket(zmq.ROUTER)
        self._door = Door(self._context, self._front, keys) if keys else None
        self._front.setsockopt(zmq.LINGER, 0)
        where = f"tcp://{address}"
        if port:
            self._front.bind(f"{where}:{port}")
        self.address = f"{address}:{port or self._front.bind_to_random_port(where)}"
        self._back = self._context.socket(zmq.DEALER)
        self._back.setsockopt(zmq.LINGER, 0)
        self._back.setsockopt(zmq.SNDHWM, 1)  # no request waits long for a busy thread while another is idle
        self._back.bind("inproc://threads")
        self._malformed = 0
        self._denied = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._serve, name=f"ps-{n}", daemon=True) for n in range(threads)]
        self._threads.append(threading.Thread(target=self._move, name="ps-router", daemon=True))
        for thread in self._threads:
            thread.start()

    @property
    def malformed(self) -> int:
        """Messages that were none."""
        return self._malformed

    @property
    def denied(self) -> int:
        """Requests without the token, and connections without the keys."""
        return self._denied + (self._door.refused if self._door else 0)

    def close(self) -> None:
        self._context.term()  # ends every wait; each thread closes the sockets it used
        for thread in self._threads:
            thread.join()
        if self._door:
            self._door.join()

    def _move(self) -> None:
        try:
            zmq.proxy(self._front, self._back)
        except zmq.ZMQError:  # the context was closed
            pass
        finally:
            self._front.close()
            self._back.close()

    def _serve(self) -> None:
        socket = self._context.socket(zmq.ROUTER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, 1)
        try:
            socket.connect("inproc://threads")
            while True:
                self._serve_one(socket)
        except zmq.ZMQError:
            pass
        finally:
            socket.close()

    def _serve_one(self, socket: zmq.Socket[bytes]) -> None:
        frames = socket.recv_multipart(copy=False)
        # Two names lead back: the proxy's, then the worker's.
        way, buffers = [frame.bytes for frame in frames[:2]], [frame.buffer for frame in frames[2:]]
        try:
            message = wire.decode(buffers)
        except Malformed as exc:
            with self._lock:
                self._malformed += 1
            _log.warning("a message that is none: %s", exc)
            reply = Message(Kind.REPLY, 0, status=Status.REFUSED, text=f"malformed: {exc}".encode())
        else:
            reply = self._answer(message)
        send(socket, [*way, *wire.encode(reply)])

    def _answer(self, message: Message) -> Message:
        if not hmac.compare_digest(message.token, self._token):
            with self._lock:
                self._denied += 1
            return Message(Kind.REPLY, message.request, status=Status.DENIED, text=b"wrong token")
        try:
            return self._answers.get(message.kind, self._holdings.answer)(message)
        except Refused as exc:
            why = str(exc)
        except Exception as exc:  # one request, whatever it was, must not end a thread that serves all
            _log.exception("%s: an error of ours", message.kind.name)
            why = f"{message.kind.name}: an error of this ps: {exc!r}"
        return Message(Kind.REPLY, message.request, status=Status.REFUSED, text=why.encode())


def send(socket: zmq.Socket[bytes], frames: list[wire.Buffer]) -> None:
    """A multipart message; large arrays are not copied, and must not be written to afterwards."""
    last = len(frames) - 1
    for number, frame in enumerate(frames):
        is_large = memoryview(frame).nbytes >= COPY_BYTES
        socket.send(frame, zmq.SNDMORE if number < last else 0, copy=not is_large)
