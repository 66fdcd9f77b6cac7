"""Forwards changes of a ps to its backup on another ps, and replies to workers when the backup has them, too.

Each serving thread has its own forwarder. None waits for a backup while it could serve others, so two ps may hold each
other's backups.
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
    route: list[bytes]  # to the sender
    reply: PsMessage
    overdue_at: float


class PeerSettings(NamedTuple):
    """How to connect to another ps."""

    context: zmq.Context[zmq.Socket[bytes]]
    token: bytes
    keys: CurveKeys | None
    timeout_s: float  # a backup that has not replied for this long is given up


class BackupForwarder:
    """Forwards the requests that one thread receives by `socket`."""

    def __init__(self, ps_state: PsState, socket: zmq.Socket[bytes], settings: PeerSettings) -> None:
        self._ps_state = ps_state
        self._requests_from = socket
        self._settings = settings
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        self._backup: BackupHolder | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._numbers = count(1)
        self._waiting: dict[int, _PendingReply] = {}

    def __len__(self) -> int:
        """The number of replies that wait for the backup."""
        return len(self._waiting)

    def close(self) -> None:
        """Drops all waiting replies and closes the connection."""
        for _ in self._released():
            pass
        self._disconnect()

    def forward(self, route: list[bytes], answer: ServeResult) -> None:
        """Forwards a change without waiting; a backup that cannot be reached is given up."""
        assert answer.backup is not None and answer.forward is not None
        number = next(self._numbers)
        self._waiting[number] = _PendingReply(route, answer.reply, time.monotonic() + self._settings.timeout_s)
        try:
            if self._backup != answer.backup or self._socket is None:
                self._connect(answer.backup)
            assert self._socket is not None
            send_frames(
                self._socket,
                messages.encode_message(answer.forward._replace(request=number, token=self._settings.token)),
            )
        except zmq.ContextTerminated:
            raise
        except zmq.ZMQError as exc:
            reason = "it accepts no more messages" if isinstance(exc, zmq.Again) else f"cannot be reached: {exc}"
            self._ps_state.fail_backup(answer.backup, reason)

    def poll(self, milliseconds: int) -> bool:
        """Waits for a request or a reply of the backup; returns whether a request has come."""
        return any(ready is self._requests_from for ready, _ in self._poller.poll(milliseconds))

    def completed_replies(self) -> Iterator[tuple[list[bytes], PsMessage]]:
        """Yields the replies that may be sent now, with their routes."""
        if not self._waiting:
            return
        while self._socket is not None and self._socket.poll(0):
            frames = self._socket.recv_multipart(copy=False)
            try:
                answer = messages.decode_message([frame.buffer for frame in frames])
            except MalformedMessage as exc:
                self._fail_backup(f"malformed reply: {exc}")
                break
            waiting = self._waiting.pop(answer.request, None)
            if waiting is not None:
                yield waiting.route, self._check_backup_reply(waiting.reply, answer)
                self._ps_state.finish_forward()
        if self._backup is not None and self._ps_state.backup == self._backup:
            if not self._waiting or time.monotonic() < next(iter(self._waiting.values())).overdue_at:
                return
            self._fail_backup(f"no answer within {self._settings.timeout_s:g} s")
        yield from self._released()
        self._disconnect()  # a new backup needs a new connection

    def _released(self) -> Iterator[tuple[list[bytes], PsMessage]]:
        """Yields all waiting replies after the backup was given up."""
        for waiting in self._waiting.values():
            yield waiting.route, waiting.reply
            self._ps_state.finish_forward()
        self._waiting = {}

    def _check_backup_reply(self, reply: PsMessage, answer: PsMessage) -> PsMessage:
        """Turns the reply into MOVED if the backup was promoted: then this ps no longer owns any slot."""
        if answer.status is ReplyStatus.MOVED:
            try:
                slot_map = SlotMap.from_document(json.loads(answer.text))
            except (ValueError, KeyError, TypeError) as exc:
                self._fail_backup(f"a reply without a map: {exc}")
                return reply
            if slot_map.version > self._ps_state.slot_map.version:
                self._ps_state.set_slot_map(slot_map)
                return reply._replace(
                    status=ReplyStatus.MOVED, map_version=slot_map.version, text=answer.text, parts=()
                )
        if answer.status is not ReplyStatus.OK:
            has_no_backup = answer.status is ReplyStatus.MOVED
            self._fail_backup("it has no backup of this ps" if has_no_backup else answer.text.decode(errors="replace"))
        return reply

    def _fail_backup(self, reason: str) -> None:
        if self._backup is not None:
            self._ps_state.fail_backup(self._backup, reason)

    def _connect(self, backup: BackupHolder) -> None:
        self._disconnect()
        self._backup = backup
        self._socket = connect_socket(self._settings.context, backup.address, self._settings.token, self._settings.keys)
        self._socket.setsockopt(zmq.SNDTIMEO, 0)
        self._poller.register(self._socket, zmq.POLLIN)

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._poller.unregister(self._socket)
            self._socket.close()
            self._socket = None
