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

from elasticdl.ps.slots import SlotMap
from elasticdl.ps.tables.state import BackupHolder, PsState, ServeResult
from elasticdl.ps.wire import messages
from elasticdl.ps.wire.authentication import connect_socket
from elasticdl.ps.wire.connections import send_frames
from elasticdl.ps.wire.keys import CurveKeys
from elasticdl.ps.wire.messages import MalformedMessage, PsMessage, ReplyStatus


class _PendingReply(NamedTuple):
    route: list[bytes]  # back to whoever asked
    reply: PsMessage
    overdue_at: float


class PeerSettings(NamedTuple):
    """How another ps is reached."""

    context: zmq.Context[zmq.Socket[bytes]]
    token: bytes
    keys: CurveKeys | None
    timeout_s: float  # a copy that answers nothing for so long is given up


class BackupForwarder:
    """For one thread, whose requests come by `socket`."""

    def __init__(self, holdings: PsState, socket: zmq.Socket[bytes], line: PeerSettings) -> None:
        self._holdings = holdings
        self._requests_from = socket
        self._how = line
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        self._mirror: BackupHolder | None = None
        self._line: zmq.Socket[bytes] | None = None
        self._numbers = count(1)
        self._waiting: dict[int, _PendingReply] = {}

    def __len__(self) -> int:
        """Answers that wait for the copy."""
        return len(self._waiting)

    def close(self) -> None:
        """Nobody will be answered any more."""
        for _ in self._released():
            pass
        self._disconnect()

    def forward(self, way: list[bytes], answer: ServeResult) -> None:
        """Never waits: a copy that cannot be reached, or takes nothing, is given up."""
        assert answer.backup is not None and answer.forward is not None
        number = next(self._numbers)
        self._waiting[number] = _PendingReply(way, answer.reply, time.monotonic() + self._how.timeout_s)
        try:
            if self._mirror != answer.backup or self._line is None:
                self._connect(answer.backup)
            assert self._line is not None
            send_frames(
                self._line, messages.encode_message(answer.forward._replace(request=number, token=self._how.token))
            )
        except zmq.ContextTerminated:
            raise
        except zmq.ZMQError as exc:
            why = "it takes nothing any more" if isinstance(exc, zmq.Again) else f"cannot be reached: {exc}"
            self._holdings.fail_backup(answer.backup, why)

    def poll(self, milliseconds: int) -> bool:
        """Until a request has come, or the copy has answered, or so much time has passed. Whether it is a request."""
        return any(ready is self._requests_from for ready, _ in self._poller.poll(milliseconds))

    def completed_replies(self) -> Iterator[tuple[list[bytes], PsMessage]]:
        """Replies that may go out now, and their way."""
        if not self._waiting:
            return
        while self._line is not None and self._line.poll(0):
            frames = self._line.recv_multipart(copy=False)
            try:
                answer = messages.decode_message([frame.buffer for frame in frames])
            except MalformedMessage as exc:
                self._break(f"an answer that is none: {exc}")
                break
            waiting = self._waiting.pop(answer.request, None)
            if waiting is not None:
                yield waiting.route, self._judged(waiting.reply, answer)
                self._holdings.finish_forward()
        if self._mirror is not None and self._holdings.mirror == self._mirror:
            if not self._waiting or time.monotonic() < next(iter(self._waiting.values())).overdue_at:
                return
            self._break(f"no answer within {self._how.timeout_s:g} s")
        yield from self._released()
        self._disconnect()  # a copy that is made anew is not kept over a connection on which nothing comes

    def _released(self) -> Iterator[tuple[list[bytes], PsMessage]]:
        """Nobody waits for this copy any more."""
        for waiting in self._waiting.values():
            yield waiting.route, waiting.reply
            self._holdings.finish_forward()
        self._waiting = {}

    def _judged(self, reply: PsMessage, answer: PsMessage) -> PsMessage:
        """A copy that belongs to its holder by now says that we own nothing any more: then we have done nothing."""
        if answer.status is ReplyStatus.MOVED:
            try:
                slot_map = SlotMap.from_document(json.loads(answer.text))
            except (ValueError, KeyError, TypeError) as exc:
                self._break(f"an answer without a map: {exc}")
                return reply
            if slot_map.version > self._holdings.slot_map.version:
                self._holdings.set_slot_map(slot_map)
                return reply._replace(
                    status=ReplyStatus.MOVED, map_version=slot_map.version, text=answer.text, parts=()
                )
        if answer.status is not ReplyStatus.OK:
            no_copy = answer.status is ReplyStatus.MOVED
            self._break("it holds no copy of ours" if no_copy else answer.text.decode(errors="replace"))
        return reply

    def _break(self, why: str) -> None:
        if self._mirror is not None:
            self._holdings.fail_backup(self._mirror, why)

    def _connect(self, mirror: BackupHolder) -> None:
        self._disconnect()
        self._mirror = mirror
        self._line = connect_socket(self._how.context, mirror.address, self._how.token, self._how.keys)
        self._line.setsockopt(zmq.SNDTIMEO, 0)
        self._poller.register(self._line, zmq.POLLIN)

    def _disconnect(self) -> None:
        if self._line is not None:
            self._poller.unregister(self._line)
            self._line.close()
            self._line = None
