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
from elasticdl.ps.holdings import Holdings
from elasticdl.ps.keys import Keys
from elasticdl.ps.line import connected, send
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.wire import Message, Status


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
        if self._line is not None:
            self._line.close()

    def send(self, way: list[bytes], answer: Answer) -> None:
        assert answer.mirror is not None and answer.forward is not None
        if self._mirror != answer.mirror or self._line is None:
            self._connect(answer.mirror)
        assert self._line is not None
        number = next(self._numbers)
        self._waiting[number] = _Waiting(way, answer.reply, time.monotonic() + self._how.timeout_s)
        send(self._line, wire.encode(answer.forward._replace(request=number, token=self._how.token)))

    def wait(self, milliseconds: int) -> bool:
        """Until a request has come, or the copy has answered, or so much time has passed. Whether it is a request."""
        return any(ready is self._requests_from for ready, _ in self._poller.poll(milliseconds))

    def settled(self) -> Iterator[tuple[list[bytes], Message]]:
        """Replies that may go out now, and their way."""
        if not self._waiting:
            return
        while self._line is not None and self._line.poll(0):
            answer = wire.decode([frame.buffer for frame in self._line.recv_multipart(copy=False)])
            waiting = self._waiting.pop(answer.request, None)
            if waiting is not None:
                yield waiting.way, self._judged(waiting.reply, answer)
                self._holdings.done()
        if self._mirror is not None and self._waiting and self._holdings.mirror == self._mirror:
            oldest = next(iter(self._waiting.values()))
            if time.monotonic() < oldest.overdue_at:
                return
            self._holdings.break_mirror(self._mirror, f"no answer within {self._how.timeout_s:g} s")
        yield from self._released()

    def _released(self) -> Iterator[tuple[list[bytes], Message]]:
        """Nobody waits for this copy any more."""
        for waiting in self._waiting.values():
            yield waiting.way, waiting.reply
            self._holdings.done()
        self._waiting = {}

    def _judged(self, reply: Message, answer: Message) -> Message:
        """A copy that belongs to its holder by now says that we own nothing any more: then we have done nothing."""
        if answer.status is Status.MOVED:
            slot_map = SlotMap.load(json.loads(answer.text))
            if slot_map.version > self._holdings.map.version:
                self._holdings.set_map(slot_map)
                return reply._replace(status=Status.MOVED, version=slot_map.version, text=answer.text, parts=())
        if answer.status is not Status.OK and self._mirror is not None:
            no_copy = answer.status is Status.MOVED
            why = "it holds no copy of ours" if no_copy else answer.text.decode(errors="replace")
            self._holdings.break_mirror(self._mirror, why)
        return reply

    def _connect(self, mirror: Mirror) -> None:
        if self._line is not None:
            self._poller.unregister(self._line)
            self._line.close()
        self._mirror, self._line = mirror, connected(self._how.context, mirror.address, self._how.keys)
        self._poller.register(self._line, zmq.POLLIN)
