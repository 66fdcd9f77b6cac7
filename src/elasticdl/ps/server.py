"""A ps on its socket: a router in front, a few threads behind it, holdings in the middle.

ZeroMQ moves messages between router and threads without Python; the threads release the GIL in the native core.
So requests of several workers are served at once, and a request costs Python some tens of microseconds.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType

import zmq

from elasticdl.ps import wire
from elasticdl.ps.answer import Answer
from elasticdl.ps.door import Door, token_digest
from elasticdl.ps.forwards import Forwards, Line
from elasticdl.ps.holdings import Holdings
from elasticdl.ps.keys import Keys
from elasticdl.ps.line import send
from elasticdl.ps.pulse import Pulse
from elasticdl.ps.shared import Offer, Views
from elasticdl.ps.store import Refused
from elasticdl.ps.wire import Kind, Malformed, Message, NoMemory, Status
from elasticdl.vital import VitalThread

# The replies to kinds that others answer than the holdings. None: not yet; it is asked again, a moment later.
Answers = Mapping[Kind, Callable[[Message], Message | None]]

_log = logging.getLogger(__name__)

_GATE_MS = 1  # so often a thread with requests that were held back looks whether the gate is open again
_COPY_MS = 50  # so often it looks whether the copies it waits for are still wanted


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
        copy_timeout_s: float = 10.0,
        answers: Answers = MappingProxyType({}),
        keys: Keys | None = None,
    ) -> None:
        """Nobody without the token gets a word in, with `keys` nobody without those."""
        self._holdings = holdings
        self._answers = answers
        self._keys = keys
        self._token = token_digest(token)
        self.memories = Views()  # of workers on this machine
        self._copy_timeout_s = copy_timeout_s  # a copy that answers nothing for so long is given up
        self._context = zmq.Context()
        self._front = self._context.socket(zmq.ROUTER)
        self._door = Door(self._context, self._front, self._token, keys)
        where = f"tcp://{address}"
        if port:
            self._front.bind(f"{where}:{port}")
        self.address = f"{address}:{port or self._front.bind_to_random_port(where)}"
        self._back = self._context.socket(zmq.DEALER)
        self._back.setsockopt(zmq.LINGER, 0)
        self._back.setsockopt(zmq.SNDHWM, 1)  # no request waits long for a busy thread while another is idle
        self._back.bind("inproc://threads")
        self.pulse = Pulse(threads)
        self._malformed = 0
        self._denied = 0
        self._lock = threading.Lock()
        self._threads = [VitalThread(self._serve, args=(n,), name=f"serving-{n}") for n in range(threads)]
        self._threads.append(VitalThread(self._move, name="ps-router"))
        for thread in self._threads:
            thread.start()

    @property
    def malformed(self) -> int:
        """Messages that were none."""
        return self._malformed

    @property
    def denied(self) -> int:
        """Connections that were refused, and requests without the token."""
        return self._denied + self._door.refused

    def close(self) -> None:
        self._context.term()  # ends every wait; each thread closes the sockets it used
        for thread in self._threads:
            thread.join()
        self._door.join()

    def _move(self) -> None:
        try:
            zmq.proxy(self._front, self._back)
        except zmq.ContextTerminated:
            pass
        finally:
            self._front.close()
            self._back.close()

    def _serve(self, number: int) -> None:
        socket = self._context.socket(zmq.ROUTER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, 1)
        line = Line(self._context, self._token, self._keys, self._copy_timeout_s)
        thread = _Thread(socket, Forwards(self._holdings, socket, line))
        try:
            socket.connect("inproc://threads")
            while True:
                request = thread.next_request()
                with self.pulse.serving(number):
                    if request is not None:
                        self._serve_one(thread, request)
                    self._settle(thread)
        except zmq.ContextTerminated:
            pass
        finally:
            thread.forwards.close()
            socket.close()

    def _serve_one(self, thread: _Thread, frames: list[zmq.Frame]) -> None:
        # Two names lead back: the proxy's, then the worker's.
        way, buffers = [frame.bytes for frame in frames[:2]], [frame.buffer for frame in frames[2:]]
        message = self._read(buffers)
        if isinstance(message, Answer):
            thread.answer(way, message)
        elif answer := self._answer(message):
            thread.answer(way, answer)
        else:
            thread.held_back.append((way, message))

    def _read(self, frames: list[memoryview]) -> Message | Answer:
        """The token first: of a message without it nothing else is read."""
        request = 0
        try:
            token, request = wire.token_of(frames)
            if not hmac.compare_digest(token, self._token):
                with self._lock:
                    self._denied += 1
                return _refusal(request, "wrong token", Status.DENIED)
            return wire.decode(frames, self.memories.find)
        except NoMemory as exc:
            return Answer(Message(Kind.REPLY, exc.request, status=Status.UNSEEN))
        except Malformed as exc:
            why = f"malformed: {exc}"
        except Exception as exc:  # of one message, whatever it was: this thread serves all
            _log.exception("a message that cannot be read")
            why = f"malformed: {exc!r}"
        with self._lock:
            self._malformed += 1
        _log.warning("a message that is none: %s", why)
        return _refusal(request, why)

    def _answer(self, message: Message) -> Answer | None:
        """None: the gate is closed, and it may be that whoever closed it needs this thread before it opens."""
        try:
            if message.kind is Kind.SHARE:
                return Answer(self._see(message))
            if message.kind in self._answers:
                reply = self._answers[message.kind](message)
                return Answer(reply) if reply else None
            return self._holdings.serve(message, wait=not self._holdings.is_paired)
        except Refused as exc:
            why = str(exc)
        except Exception as exc:  # one request, whatever it was, must not end a thread that serves all
            _log.exception("%s: an error of ours", message.kind.name)
            why = f"{message.kind.name}: an error of this ps: {exc!r}"
        return _refusal(message.request, why)

    def _see(self, message: Message) -> Message:
        """Look for the memory of a worker, which is on this machine or elsewhere."""
        try:
            self.memories.open(Offer.load(message.text))
        except NoMemory:
            return Message(Kind.REPLY, message.request, status=Status.UNSEEN)
        except ValueError as exc:
            raise Refused(f"SHARE: {exc}") from exc
        return Message(Kind.REPLY, message.request)

    def _settle(self, thread: _Thread) -> None:
        """Answer what the copy has by now, and what was held back by the gate."""
        for way, reply in thread.forwards.settled():
            send(thread.socket, [*way, *wire.encode(reply)])
        while thread.held_back:
            way, message = thread.held_back[0]
            answer = self._answer(message)
            if answer is None:
                return
            thread.held_back.popleft()
            thread.answer(way, answer)


class _Thread:
    """What one of them has in its hands."""

    def __init__(self, socket: zmq.Socket[bytes], forwards: Forwards) -> None:
        self.socket = socket
        self.forwards = forwards
        self.held_back: deque[tuple[list[bytes], Message]] = deque()

    def next_request(self) -> list[zmq.Frame] | None:
        """Wait for a request; not for long where something else is to be done, then None."""
        has_more = bool(self.held_back or self.forwards)
        if has_more and not self.forwards.wait(_GATE_MS if self.held_back else _COPY_MS):
            return None
        return self.socket.recv_multipart(copy=False)

    def answer(self, way: list[bytes], answer: Answer) -> None:
        if answer.mirror:
            self.forwards.send(way, answer)
        else:
            send(self.socket, [*way, *wire.encode(answer.reply)])


def _refusal(request: int, why: str, status: Status = Status.REFUSED) -> Answer:
    return Answer(Message(Kind.REPLY, request, status=status, text=why.encode()))
