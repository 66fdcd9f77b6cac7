"""What a ps has done goes on to its copy, and is answered when the copy has it, too.

Each thread of a ps has its own. None waits for a copy while it could serve others, so two ps may hold each other's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import zmq

from elasticdl.ps import wire
from elasticdl.ps.answer import Answer, Mirror
from elasticdl.ps.door import connect
from elasticdl.ps.holdings import Holdings
from elasticdl.ps.keys import Keys
from elasticdl.ps.line import send
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.wire import Malformed, Message, Status


class _Waiting(NamedTuple):
    way: list[bytes]  # back to whoever asked
    reply: Message
    overdue_at: float


class Line(NamedTuple):
    """How another ps is reached."""

    context: zmq.Context[zmq.Socket[bytes]]
    token: bytes
    keys: Keys | None
    timeout_s: float  # a copy that answers nothing for so long is given up


class Forwards:
    """For one thread, whose requests come by `socket`."""

    def __init__(self, holdings: Holdings, socket: zmq.Socket[bytes], line: Line) -> None:
        self._holdings = holdings
        self._requests_from = socket
        self._how = line
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        self._mirror: Mirror | None = None
        self._line: zmq.Socket[bytes] | None = None
        self._numbers = count(1)
        self._waiting: dict[int, _Waiting] = {}

    def __len__(self) -> int:
        """Answers that wait for the copy."""
        return len(self._waiting)

    def close(self) -> None:
        """Nobody will be answered any more."""
        for _ in self._released():
            pass
        self._disconnect()

    def send(self, way: list[bytes], answer: Answer) -> None:
        """Never waits: a copy that cannot be reached, or takes nothing, is given up."""
        assert answer.mirror is not None and answer.forward is not None
        number = next(self._numbers)
        self._waiting[number] = _Waiting(way, answer.reply, time.monotonic() + self._how.timeout_s)
        try:
            if self._mirror != answer.mirror or self._line is None:
                self._connect(answer.mirror)
            assert self._line is not None
            send(self._line, wire.encode(answer.forward._replace(request=number, token=self._how.token)))
        except zmq.ContextTerminated:
            raise
        except zmq.ZMQError as exc:
            why = "it takes nothing any more" if isinstance(exc, zmq.Again) else f"cannot be reached: {exc}"
            self._holdings.break_mirror(answer.mirror, why)

    def wait(self, milliseconds: int) -> bool:
        """Until a request has come, or the copy has answered, or so much time has passed. Whether it is a request."""
        return any(ready is self._requests_from for ready, _ in self._poller.poll(milliseconds))

    def settled(self) -> Iterator[tuple[list[bytes], Message]]:
        """Replies that may go out now, and their way."""
        if not self._waiting:
            return
        while self._line is not None and self._line.poll(0):
            frames = self._line.recv_multipart(copy=False)
            try:
                answer = wire.decode([frame.buffer for frame in frames])
            except Malformed as exc:
                self._break(f"an answer that is none: {exc}")
                break
            waiting = self._waiting.pop(answer.request, None)
            if waiting is not None:
                yield waiting.way, self._judged(waiting.reply, answer)
                self._holdings.done()
        if self._mirror is not None and self._holdings.mirror == self._mirror:
            if not self._waiting or time.monotonic() < next(iter(self._waiting.values())).overdue_at:
                return
            self._break(f"no answer within {self._how.timeout_s:g} s")
        yield from self._released()
        self._disconnect()  # a copy that is made anew is not kept over a connection on which nothing comes

    def _released(self) -> Iterator[tuple[list[bytes], Message]]:
        """Nobody waits for this copy any more."""
        for waiting in self._waiting.values():
            yield waiting.way, waiting.reply
            self._holdings.done()
        self._waiting = {}

    def _judged(self, reply: Message, answer: Message) -> Message:
        """A copy that belongs to its holder by now says that we own nothing any more: then we have done nothing."""
        if answer.status is Status.MOVED:
            try:
                slot_map = SlotMap.load(json.loads(answer.text))
            except (ValueError, KeyError, TypeError) as exc:
                self._break(f"an answer without a map: {exc}")
                return reply
            if slot_map.version > self._holdings.map.version:
                self._holdings.set_map(slot_map)
                return reply._replace(status=Status.MOVED, version=slot_map.version, text=answer.text, parts=())
        if answer.status is not Status.OK:
            no_copy = answer.status is Status.MOVED
            self._break("it holds no copy of ours" if no_copy else answer.text.decode(errors="replace"))
        return reply

    def _break(self, why: str) -> None:
        if self._mirror is not None:
            self._holdings.break_mirror(self._mirror, why)

    def _connect(self, mirror: Mirror) -> None:
        self._disconnect()
        self._mirror = mirror
        self._line = connect(self._how.context, mirror.address, self._how.token, self._how.keys)
        self._line.setsockopt(zmq.SNDTIMEO, 0)
        self._poller.register(self._line, zmq.POLLIN)

    def _disconnect(self) -> None:
        if self._line is not None:
            self._poller.unregister(self._line)
            self._line.close()
            self._line = None
