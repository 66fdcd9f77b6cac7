"""XGBoost's communicator of one round: its members find each other over the mesh of the round.

XGBoost asks a tracker for its rank and for the address of the next member. Here each worker is its own tracker: a
thread answers this worker's XGBoost on loopback, and the ports on which all of them listen travel over the mesh, whose
members are authenticated. No process is special, nothing outlives the round, and a communicator takes milliseconds.

The tracker's protocol, in the byte order of the machine: each side sends a magic number; a message is its length and a
JSON object. XGBoost opens a connection for each command.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, Self

import torch
from xgboost import collective
from xgboost.core import XGBoostError

from elasticdl.collective.group import Group
from elasticdl.errors import RoundBroken

_log = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"
_MAGIC = 0xFF99
_NUMBER = struct.Struct("=i")
_MAX_MESSAGE_BYTES = 1 << 20
_END_OF_ERROR_THREAD = 0
_DESCRIPTORS = "/proc/self/fd"
_ABORT_INTERVAL_S = 0.01
_PORT_TIMEOUT_S, _PORT_POLL_S = 1.0, 0.001
# Silence is noticed by heartbeats, and the round is aborted; XGBoost itself must not give up before that.
_NEVER_S = 7 * 86400

Address = tuple[str, int]


class _Command(IntEnum):
    """Commands of XGBoost to its tracker. One more, that it leaves, needs no answer."""

    START = 1
    ERROR = 3
    PRINT = 4


class TreeCommunicator:
    """The communicator of the thread that opened it: trees that this thread grows are those of all members."""

    def __init__(self, group: Group, worker: str, hosts: Sequence[str]) -> None:
        """`hosts` are those of all members, by rank."""
        self._group = group
        self._tracker = _LocalTracker(group, hosts)
        self._worker = worker
        self._is_aborted = False
        self._is_settled = threading.Event()  # not yet begun, open, or failed: it makes no connections
        self._is_settled.set()

    def open(self) -> Self:
        """Connect to the other members, which do the same. Raises RoundBroken."""
        self._is_settled.clear()
        self._tracker.start()
        try:
            if self._is_aborted:
                raise RoundBroken("aborted")
            collective.init(
                dmlc_tracker_uri=_LOOPBACK, dmlc_tracker_port=self._tracker.port, dmlc_task_id=self._worker,
                dmlc_timeout=_NEVER_S, dmlc_retry=1,
            )  # fmt: skip
            self._tracker.end_error_thread()
        except (XGBoostError, OSError, RoundBroken) as exc:
            self.close()
            raise RoundBroken(self._tracker.failure or f"XGBoost: {first_line(exc)}") from exc
        finally:
            self._is_settled.set()
        return self

    def abort(self) -> None:
        """Break the round for this worker and its peers. From any thread."""
        self._is_aborted = True
        self._group.abort()  # the tracker may wait for ports
        self._shut_down_connections()
        while not self._is_settled.wait(_ABORT_INTERVAL_S):
            self._shut_down_connections()  # XGBoost may have made another one since

    def close(self) -> None:
        """Leave the round, in the thread that opened it."""
        try:
            collective.finalize()
        except XGBoostError as exc:
            _log.debug("XGBoost left a broken round: %s", first_line(exc))
        finally:
            self._tracker.close()

    def _shut_down_connections(self) -> None:
        peers, own_port = self._tracker.peers, self._tracker.own_port
        for connection in _internet_sockets():
            with connection, contextlib.suppress(OSError):  # a socket without a peer
                is_own = own_port and connection.getsockname()[1] == own_port
                if is_own or (peers and connection.getpeername() in peers):
                    connection.shutdown(socket.SHUT_RDWR)


class _LocalTracker:
    """Answers the XGBoost of this process as the tracker of all members would."""

    def __init__(self, group: Group, hosts: Sequence[str]) -> None:
        self._group = group
        self._hosts = hosts
        self._listener: socket.socket | None = None
        self._error_port = 0
        self._stand_in: socket.socket | None = None  # for the thread of XGBoost that was ended
        self.port = 0
        self.own_port = 0  # on which XGBoost listens
        self.peers: frozenset[Address] = frozenset()
        self.failure = ""

    def start(self) -> None:
        self._listener = socket.create_server((_LOOPBACK, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, args=(self._listener,), name="xgboost-tracker", daemon=True).start()

    def end_error_thread(self) -> None:
        """End the thread of XGBoost that ends the process if somebody connects and says so.

        At the end of the round XGBoost connects to that thread: from now on a socket stands in for it, on loopback.
        """
        with socket.create_connection((_LOOPBACK, self._error_port)) as connection:
            # Number and end in one packet: if the thread closed first, its port would be taken for a minute.
            connection.sendall(_NUMBER.pack(_END_OF_ERROR_THREAD), socket.MSG_MORE)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)  # until the thread has closed it, too
        with contextlib.suppress(OSError):  # without it XGBoost warns at the end of the round
            self._stand_in = _listen_when_free(self._error_port)

    def close(self) -> None:
        for listener in (self._listener, self._stand_in):
            if listener is not None:
                with contextlib.suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
                listener.close()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # closed
            with connection:
                try:
                    self._answer(connection)
                except (OSError, ValueError, KeyError, RoundBroken) as exc:
                    self.failure = self.failure or str(exc)

    def _answer(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(_NUMBER.pack(_MAGIC))
        if _receive_number(connection) != _MAGIC:
            raise ConnectionError("no tracker's client")
        _receive_message(connection)  # the rank it had
        message = _receive_message(connection)
        if message["cmd"] == _Command.START:
            self._error_port = int(message["error_port"])
            self.own_port = int(message["port"])
            self._introduce(connection)
        elif message["cmd"] == _Command.ERROR:
            self.failure = self.failure or str(message["msg"])
        elif message["cmd"] == _Command.PRINT:
            _log.info("XGBoost: %s", message["msg"])

    def _introduce(self, connection: socket.socket) -> None:
        """Exchange the ports with all members, and answer with the next one's address."""
        rank, size = self._group.rank, self._group.size
        ports = torch.empty(size, dtype=torch.int64)
        self._group.allgather(ports, torch.tensor([self.own_port]))
        addresses = [(host, int(port)) for host, port in zip(self._hosts, ports, strict=True)]
        self.peers = frozenset(addresses)
        following = (rank + 1) % size
        host, port = addresses[following]
        _send_message(connection, {"world_size": size})
        _send_message(connection, {"rank": following, "host": host, "port": port})


def _internet_sockets() -> Iterator[socket.socket]:
    """Duplicates of all internet sockets of this process."""
    for name in os.listdir(_DESCRIPTORS):
        try:
            if not os.readlink(f"{_DESCRIPTORS}/{name}").startswith("socket:"):
                continue
            duplicate = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue  # closed meanwhile
        if duplicate.family in (socket.AF_INET, socket.AF_INET6):
            yield duplicate
        else:
            duplicate.close()


def _listen_when_free(port: int) -> socket.socket:
    """Listen on a port that is about to become free."""
    deadline = time.monotonic() + _PORT_TIMEOUT_S
    while True:
        try:
            return socket.create_server((_LOOPBACK, port))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PORT_POLL_S)


def _receive_number(connection: socket.socket) -> int:
    (number,) = _NUMBER.unpack(_receive(connection, _NUMBER.size))
    return int(number)


def _receive_message(connection: socket.socket) -> dict[str, Any]:
    length = _receive_number(connection)
    if not 0 < length <= _MAX_MESSAGE_BYTES:
        raise ConnectionError(f"a message of {length} bytes")
    message = json.loads(_receive(connection, length))
    if not isinstance(message, dict):
        raise ValueError(f"a message that is no object: {message!r}")
    return message


def _receive(connection: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        # XGBoost writes a length and then the message: without this, the second waits 40 ms for an acknowledgement.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        piece = connection.recv(length - len(received))
        if not piece:
            raise ConnectionError("closed in the middle of a message")
        received += piece
    return bytes(received)


def _send_message(connection: socket.socket, message: dict[str, Any]) -> None:
    text = json.dumps(message).encode()
    connection.sendall(_NUMBER.pack(len(text)) + text)


def first_line(exc: BaseException) -> str:
    """The first line of a message that says something: XGBoost begins with a time, and ends with a stack trace."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip(" -:")]
    return lines[0] if lines else type(exc).__name__
