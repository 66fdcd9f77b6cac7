"""Connections to the ps of a job: messages out, replies in, for one thread."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Collection, Mapping
from itertools import count
from typing import Self

import zmq

from elasticdl.errors import AccessDenied, ElasticDLError, TransientError
from elasticdl.ps.wire import messages
from elasticdl.ps.wire.authentication import connect_socket, token_digest
from elasticdl.ps.wire.keys import CurveKeys
from elasticdl.ps.wire.messages import MalformedMessage, PsMessage, ReplyStatus
from elasticdl.spec import PsId

# Frames below this are copied into the message: cheaper than keeping track of who frees them.
COPY_BYTES = 1 << 16

_log = logging.getLogger(__name__)


def send_frames(socket: zmq.Socket[bytes], frames: list[messages.Buffer]) -> None:
    """Sends a multipart message. Large arrays are not copied: do not write to them afterwards."""
    last = len(frames) - 1
    for number, frame in enumerate(frames):
        is_large = memoryview(frame).nbytes >= COPY_BYTES
        socket.send(frame, zmq.SNDMORE if number < last else 0, copy=not is_large)


class PsUnreachable(TransientError):
    """A ps does not answer."""


class PsRefused(ElasticDLError):
    """A ps refused a request; the message names the table and the reason."""


def raise_for_status(name: PsId, reply: PsMessage) -> None:
    """Raises the error that a reply reports. The caller handles MOVED."""
    match reply.status:
        case ReplyStatus.DENIED:
            raise AccessDenied(f"{name} refused the token of this job")
        case ReplyStatus.REFUSED:
            raise PsRefused(f"{name}: {reply.text.decode(errors='replace')}")


class PsConnections:
    """Sockets to any number of ps, for one thread, from `open` until `close`, or inside of `with`."""

    def __init__(
        self,
        addresses: Mapping[PsId, str],
        token: str,
        timeout_s: float,
        keys: CurveKeys | None = None,
        *,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        """Takes the ps to connect to. Others can be added with `connect`.

        `context` is one that is in use already, for a process that may run out of descriptors: a new context needs
        several, and libzmq may abort if there are none.
        """
        self._shared_context = context
        self._initial_addresses = dict(addresses)
        self._keys = keys
        self._token = token_digest(token)
        self.timeout_s = timeout_s
        self.addresses: dict[PsId, str] = {}
        self._sockets: dict[PsId, zmq.Socket[bytes]] = {}
        self._refusals: dict[PsId, zmq.Socket[bytes]] = {}  # report handshakes that were refused
        self._answered: set[PsId] = set()
        self._requests = count(1)
        self._lost: frozenset[PsId] = frozenset()

    def open(self) -> Self:
        """Connects. Raises PsUnreachable or OSError if no descriptors are left."""
        self._context = self._shared_context or zmq.Context()
        self._poller = zmq.Poller()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._poller.register(self._wake_reader, zmq.POLLIN)
        try:
            for name, address in self._initial_addresses.items():
                self.connect(name, address)
        except PsUnreachable:
            self.close()
            raise
        return self

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self, name: PsId, address: str) -> None:
        """Connects to a ps that is new or has a new address."""
        if self.addresses.get(name) == address:
            return
        self.disconnect(name)
        try:
            socket = connect_socket(self._context, address, self._token, self._keys)
            try:
                refusals = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
            except zmq.ZMQError:
                socket.close()
                raise
        except zmq.ZMQError as exc:
            raise PsUnreachable(f"{name}: no connection: {exc}") from exc
        socket.setsockopt(zmq.SNDTIMEO, round(self.timeout_s * 1000))
        self._sockets[name], self._refusals[name], self.addresses[name] = socket, refusals, address
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(refusals, zmq.POLLIN)

    def disconnect(self, name: PsId) -> None:
        """Disconnects from a ps that is gone and drops replies that are still on their way."""
        if name in self._sockets:
            for socket in (self._refusals.pop(name), self._sockets.pop(name)):
                self._poller.unregister(socket)
                socket.close(linger=0)
            self._answered.discard(name)
            del self.addresses[name]

    def close(self) -> None:
        for name in list(self._sockets):
            self.disconnect(name)
        if self._shared_context is None:
            self._context.destroy(linger=0)
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def wake(self) -> None:
        """Makes `receive` return. May be called from any thread until `close`."""
        with contextlib.suppress(BlockingIOError):  # it has been woken already
            os.write(self._wake_writer, b".")

    def mark_lost(self, names: Collection[PsId]) -> None:
        """Stops waiting in `request` for ps that are lost. May be called from any thread until `close`."""
        self._lost |= frozenset(names)
        self.wake()

    def send(self, name: PsId, message: PsMessage) -> int:
        """Sends a request at once and returns its number. Its arrays must not be written to afterwards."""
        request = next(self._requests)
        try:
            send_frames(
                self._sockets[name], messages.encode_message(message._replace(request=request, token=self._token))
            )
        except zmq.Again as exc:
            raise PsUnreachable(f"{name}: it has accepted no message for {self.timeout_s:g} s") from exc
        return request

    def receive(self, timeout_s: float | None = None) -> list[PsMessage]:
        """Waits for replies and returns them; none after the timeout or a `wake`.

        Raises AccessDenied if a ps that never answered refuses this job's token or keys.
        """
        replies: list[PsMessage] = []
        ready = dict(self._poller.poll(round((self.timeout_s if timeout_s is None else timeout_s) * 1000)))
        if self._wake_reader in ready:
            os.read(self._wake_reader, 4096)
        for name, socket in self._sockets.items():
            if socket in ready:
                replies += self._read(name, socket)
            elif self._refusals[name] in ready:
                self._refusals[name].recv_multipart()
                if name not in self._answered:
                    raise AccessDenied(f"{name} refused the token, or the keys, of this job")
        return replies

    def _read(self, name: PsId, socket: zmq.Socket[bytes]) -> list[PsMessage]:
        frames = socket.recv_multipart(copy=False)
        try:
            reply = messages.decode_message([frame.buffer for frame in frames])
        except MalformedMessage as exc:  # the request then runs into its timeout
            _log.error("%s: malformed reply: %s", name, exc)
            return []
        self._answered.add(name)
        return [reply]

    def request_all(self, messages: Mapping[PsId, PsMessage]) -> dict[PsId, PsMessage]:
        """Sends each ps its message and waits for all replies; no other request may be open."""
        if missing := [name for name in messages if name not in self._sockets]:
            raise PsUnreachable(f"{', '.join(missing)}: its address is not known here")
        deadline = time.monotonic() + self.timeout_s
        silent = {self.send(name, message): name for name, message in messages.items()}
        replies_by_ps: dict[PsId, PsMessage] = {}
        while silent:
            replies = self.receive(max(0.0, deadline - time.monotonic()))
            if not replies and time.monotonic() >= deadline:
                raise PsUnreachable(f"{', '.join(silent.values())}: no answer within {self.timeout_s:g} s")
            for reply in replies:
                if name := silent.pop(reply.request, None):
                    raise_for_status(name, reply)
                    replies_by_ps[name] = reply
            if gone := self._lost.intersection(silent.values()):
                raise PsUnreachable(f"{', '.join(sorted(gone))}: is lost")
        return {name: replies_by_ps[name] for name in messages}

    def request(self, name: PsId, message: PsMessage) -> PsMessage:
        """Sends one message and waits for its reply; no other request may be open."""
        return self.request_all({name: message})[name]
