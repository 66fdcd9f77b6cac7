"""Connections between all members of a round, and the one thread that moves bytes on them.

Every pair of members has one connection, made to the listener of the lower rank. Messages arrive in the order in
which they were sent. Each is preceded by its number and length, and an unexpected message breaks the mesh: members
that disagree on what to do must not mix up their gradients. The thread never blocks in a connection, so the mesh can
be aborted at any moment. Once it is broken, it touches no tensor any more.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Self

from elasticdl.collective.peers import ConnectionPurpose, Greeting, PeerCredentials, connect_to_peer, shut_down
from elasticdl.errors import RoundBroken
from elasticdl.vital import VitalThread

_HEADER = struct.Struct("!QQ")  # number of the message on this connection, its bytes
_COPIED_BYTES = 16 << 10  # a message up to this size goes out in one piece with its header
_MAX_CALLS = 8  # at a time, while a mesh is built

Piece = tuple[int, memoryview]  # member, and the bytes to send or the memory to receive into


class RoundMember(NamedTuple):
    """A member of a round, and the address of its listener."""

    worker: str
    address: str


class EarlyConnections:
    """Connections of members that came before this worker began to build their round."""

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._changed = threading.Condition()
        self._connections: dict[tuple[int, int], tuple[str, socket.socket, float]] = {}

    def add(self, greeting: Greeting, connection: socket.socket) -> None:
        """Keep a connection. Called by the listener's thread."""
        now = time.monotonic()
        with self._changed:
            late = [key for key, (_, _, came_at) in self._connections.items() if now - came_at > self._keep_s]
            for key in [*late, (greeting.round, greeting.rank)]:
                if key in self._connections:
                    self._connections.pop(key)[1].close()
            self._connections[greeting.round, greeting.rank] = greeting.worker, connection, now
            self._changed.notify_all()

    def take(self, round_id: int, rank: int, worker: str, deadline: float) -> socket.socket:
        """Wait for the connection of a member. Raises RoundBroken if it does not come in time."""
        key = (round_id, rank)
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._connections, max(0.0, deadline - time.monotonic())):
                raise RoundBroken(f"{worker} did not connect")
            caller, connection, _ = self._connections.pop(key)
        if caller != worker:
            connection.close()
            raise RoundBroken(f"{caller} connected as rank {rank}, which is {worker}'s")
        return connection

    def close(self) -> None:
        with self._changed:
            while self._connections:
                self._connections.popitem()[1][1].close()


def connect_mesh(
    round_id: int,
    rank: int,
    peers: Sequence[RoundMember],
    credentials: PeerCredentials,
    early_connections: EarlyConnections,
    timeout_s: float,
) -> Mesh:
    """Connect to all members of a round. Raises RoundBroken if one does not connect in time."""
    deadline = time.monotonic() + timeout_s
    greeting = Greeting(credentials.worker, ConnectionPurpose.ROUND, credentials.run, round_id, rank)

    def open_connection(member: int) -> socket.socket:
        peer = peers[member]
        if member > rank:
            return early_connections.take(round_id, member, peer.worker, deadline)
        try:
            return connect_to_peer(peer.address, credentials, greeting, max(0.001, deadline - time.monotonic()))
        except OSError as exc:
            raise RoundBroken(f"{peer.worker} at {peer.address}: {exc}") from exc

    members = [member for member in range(len(peers)) if member != rank]
    if not members:
        return Mesh({}).open()
    with ThreadPoolExecutor(min(len(members), _MAX_CALLS), "connect") as pool:
        futures = [pool.submit(open_connection, member) for member in members]
    failures = [failure for future in futures if (failure := future.exception()) is not None]
    connections = {
        member: (peers[member].worker, future.result())
        for member, future in zip(members, futures, strict=True)
        if future.exception() is None
    }
    try:
        if failures:
            raise failures[0]
        return Mesh(connections).open()
    except BaseException:
        for _, connection in connections.values():
            connection.close()
        raise


class MeshTransfer:
    """Messages that were started together; done when all of them have been sent and received."""

    __slots__ = ("_done", "_left", "failure")

    def __init__(self, pieces: int) -> None:
        self._left = pieces
        self._done = threading.Event()
        self.failure = ""
        if not pieces:
            self._done.set()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def wait(self) -> None:
        """Wait until it is done. Raises RoundBroken if the mesh breaks; then nothing writes to the tensors any more."""
        self._done.wait()
        if self.failure:
            raise RoundBroken(self.failure)

    def _finish_piece(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._done.set()

    def _fail(self, reason: str) -> None:
        self.failure = reason
        self._done.set()


class Mesh:
    """Moves messages between members, from `open` until `close`, in the order of `start`.

    `start`, `abort` and `close` may be called from any thread.
    """

    def __init__(self, connections: Mapping[int, tuple[str, socket.socket]]) -> None:
        """`connections` by rank: the member's name and the connection to it."""
        self._peers = {
            member: _MeshConnection(worker, connection) for member, (worker, connection) in connections.items()
        }
        self._lock = threading.Lock()
        self._started: deque[tuple[_MeshConnection, bool, memoryview, MeshTransfer]] = deque()
        self._failure = ""
        self._by_descriptor = {peer.connection.fileno(): peer for peer in self._peers.values()}
        self._thread = VitalThread(self._run, name="mesh")

    def open(self) -> Self:
        """Start the thread that moves bytes. Raises OSError if no descriptors are left."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self._poll = select.epoll()
        except OSError:
            os.close(self._wake)
            raise
        self._poll.register(self._wake, select.EPOLLIN)
        for descriptor in self._by_descriptor:
            self._poll.register(descriptor, 0)
        self._thread.start()
        return self

    @property
    def failure(self) -> str:
        """Why the mesh is broken; empty while it works."""
        return self._failure

    def start(self, sends: Iterable[Piece], receives: Iterable[Piece]) -> MeshTransfer:
        """Begin to send and to receive these pieces. Raises RoundBroken if the mesh is broken."""
        started = [(self._peers[member], True, view) for member, view in sends if view.nbytes]
        started += [(self._peers[member], False, view) for member, view in receives if view.nbytes]
        transfer = MeshTransfer(len(started))
        with self._lock:
            if self._failure:
                raise RoundBroken(self._failure)
            self._started.extend((*message, transfer) for message in started)
            if started:
                os.eventfd_write(self._wake, 1)
        return transfer

    def abort(self, reason: str = "the round was dropped") -> None:
        """Fail all transfers, here and at the peers. Any number of times."""
        with self._lock:
            if not self._failure:
                self._failure = reason
                os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Abort, and wait until nothing touches a tensor any more."""
        self.abort()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._failure:
                for descriptor, events in self._poll.poll():
                    if descriptor == self._wake:
                        os.eventfd_read(self._wake)
                    else:
                        self._advance(self._by_descriptor[descriptor], events)
                self._take_started()
        except (OSError, RoundBroken) as exc:
            self.abort(str(exc))
        except BaseException as exc:
            self.abort(f"{type(exc).__name__}: {exc}")
            raise
        finally:
            self._take_down()

    def _take_started(self) -> None:
        touched: dict[_MeshConnection, None] = {}
        while self._started:
            peer, is_sent, view, transfer = self._started.popleft()
            (peer.outgoing if is_sent else peer.incoming).append((view, transfer))
            touched[peer] = None
        for peer in touched:
            self._advance(peer, select.EPOLLIN | select.EPOLLOUT)

    def _advance(self, peer: _MeshConnection, events: int) -> None:
        if events & (select.EPOLLHUP | select.EPOLLERR) and not (peer.outgoing or peer.incoming):
            self._poll.unregister(peer.connection.fileno())  # the next transfer fails: what it sent before counts
            peer.watched = None
            return
        events_to_watch = 0
        if peer.outgoing and not peer.send():
            events_to_watch |= select.EPOLLOUT
        if peer.incoming and not peer.receive():
            events_to_watch |= select.EPOLLIN
        if peer.watched is not None and events_to_watch != peer.watched:
            self._poll.modify(peer.connection.fileno(), events_to_watch)
            peer.watched = events_to_watch

    def _take_down(self) -> None:
        for peer in self._peers.values():
            shut_down(peer.connection)
            peer.connection.close()
        with self._lock:
            unfinished = [transfer for _, _, _, transfer in self._started]
            self._poll.close()
            os.close(self._wake)
        unfinished += [transfer for peer in self._peers.values() for _, transfer in (*peer.outgoing, *peer.incoming)]
        for transfer in unfinished:
            transfer._fail(self._failure)


class _MeshConnection:
    """One connection. Only the mesh's thread uses it."""

    def __init__(self, worker: str, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.worker = worker
        self.connection = connection
        self.outgoing: deque[tuple[memoryview, MeshTransfer]] = deque()
        self.incoming: deque[tuple[memoryview, MeshTransfer]] = deque()
        self.watched: int | None = 0  # events; None: the peer closed the connection
        self._sent = self._received = 0  # messages
        self._unsent: deque[memoryview] = deque()  # of the first outgoing message
        self._header = bytearray(_HEADER.size)
        self._unfilled = memoryview(self._header)  # of the header, or of the first incoming message
        self._has_header = False

    def send(self) -> bool:
        """Send as much as the socket takes; whether that is everything."""
        while self.outgoing:
            message, transfer = self.outgoing[0]
            if not self._unsent:
                header = _HEADER.pack(self._sent, message.nbytes)
                is_small = message.nbytes <= _COPIED_BYTES
                self._unsent.extend([memoryview(header + message)] if is_small else [memoryview(header), message])
            while self._unsent:
                try:
                    count = self.connection.send(self._unsent[0])
                except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    return False
                self._unsent[0] = self._unsent[0][count:]
                if not self._unsent[0]:
                    self._unsent.popleft()
            self._sent += 1
            self.outgoing.popleft()
            transfer._finish_piece()
        return True

    def receive(self) -> bool:
        """Receive what has come of the expected messages; whether that is all of them."""
        while self.incoming:
            message, transfer = self.incoming[0]
            while self._unfilled:
                try:
                    count = self.connection.recv_into(self._unfilled)
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    return False
                if not count:
                    raise RoundBroken(f"{self.worker} closed the connection")
                self._unfilled = self._unfilled[count:]
            if not self._has_header:
                self._check_header(message.nbytes)
                self._has_header, self._unfilled = True, message
                continue
            self._received += 1
            self._has_header, self._unfilled = False, memoryview(self._header)
            self.incoming.popleft()
            transfer._finish_piece()
        return True

    def _check_header(self, expected_bytes: int) -> None:
        number, length = _HEADER.unpack(self._header)
        if (number, length) != (self._received, expected_bytes):
            raise RoundBroken(
                f"{self.worker} sent message {number} of {length} bytes where message {self._received} of "
                f"{expected_bytes} bytes was due: the members of this round do not do the same"
            )
