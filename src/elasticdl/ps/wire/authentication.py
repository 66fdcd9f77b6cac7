"""The door of a ps: whoever has not shown the job's token, or its keys, gets no message in.

libzmq asks here in the handshake of every connection (ZAP, RFC 27): without keys for the token, as the password of
PLAIN; with keys by CURVE. Until that is answered nothing of a connection but its handshake is read: no message is
received, decoded or queued. What strangers cost is bounded meanwhile: each has HANDSHAKE_S for the whole handshake and
a frame of FRAME_BYTES, and at most MOST_NEWCOMERS are in a handshake at once. Others are hung up on; those of the job
come back by themselves, a moment later.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import resource
import socket as sockets
import time
from collections import deque
from hashlib import blake2b

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from elasticdl.ps.wire.keys import CurveKeys
from elasticdl.ps.wire.messages import FRAME_BYTES
from elasticdl.vital import VitalThread

HANDSHAKE_S = 5.0
MAX_PENDING_HANDSHAKES = 64
LOG_INTERVAL_S = 60.0  # between two words about strangers
_CURVE_BYTES = 64  # more than CURVE adds to a frame
# The kernel answers for a process that is stopped, and for none whose machine is gone.
_KEEPALIVE = {zmq.TCP_KEEPALIVE: 1, zmq.TCP_KEEPALIVE_IDLE: 60, zmq.TCP_KEEPALIVE_INTVL: 10, zmq.TCP_KEEPALIVE_CNT: 6}
_ZAP = "inproc://zeromq.zap.01"  # where libzmq asks whether somebody may enter
_MONITOR = "inproc://handshakes"
_DOMAIN = b"elasticdl.ps"
_USER = b"elasticdl"
_FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | _FAILED

_log = logging.getLogger(__name__)


def token_digest(token: str) -> bytes:
    """What a handshake and a message carry of the job's token."""
    return blake2b(token.encode(), digest_size=16).digest()


def connect_socket(
    context: zmq.Context[zmq.Socket[bytes]], address: str, token: bytes, keys: CurveKeys | None
) -> zmq.Socket[bytes]:
    """A socket to the ps at this address, which shows the digest of the token, or the keys."""
    socket = context.socket(zmq.DEALER)
    _set_limits(socket)
    if keys:
        keys.configure_client(socket)
    else:
        socket.plain_username, socket.plain_password = _USER, token.hex().encode()
    socket.connect(f"tcp://{address}")
    return socket


class PendingHandshakes:
    """Connections that may still be in their handshake. Pure.

    Of a handshake that has succeeded libzmq does not say whose it was: such are counted, for as long as a handshake
    may last. By then every descriptor that is still open belongs to somebody who has been let in.
    """

    def __init__(self, max_pending: int, handshake_s: float) -> None:
        self._most = max_pending
        self._handshake_s = handshake_s
        self._accepted: dict[int, float] = {}  # by descriptor, the oldest first
        self._succeeded: deque[float] = deque()

    def accept(self, descriptor: int, now: float) -> bool:
        """Whether this one may stay."""
        self._forget(now - self._handshake_s)
        self._accepted.pop(descriptor, None)
        self._accepted[descriptor] = now
        return len(self._accepted) - len(self._succeeded) <= self._most

    def complete(self, now: float) -> None:
        self._succeeded.append(now)

    def close(self, descriptor: int) -> None:
        self._accepted.pop(descriptor, None)

    def _forget(self, before: float) -> None:
        while self._accepted and next(iter(self._accepted.values())) < before:
            del self._accepted[next(iter(self._accepted))]
        while self._succeeded and self._succeeded[0] < before:
            self._succeeded.popleft()


class ZapAuthenticator:
    """Guards a socket that is about to listen. Ends when the context does."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        socket: zmq.Socket[bytes],
        token: bytes,
        keys: CurveKeys | None,
        *,
        handshake_s: float = HANDSHAKE_S,
        most_newcomers: int = MAX_PENDING_HANDSHAKES,
    ) -> None:
        self.refused_connections = 0  # connections
        self._mechanism = b"CURVE" if keys else b"PLAIN"
        self._expected = z85.decode(keys.client_public.encode()) if keys else token.hex().encode()
        # A quarter of the descriptors at most: files must be opened, too.
        open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._newcomers = PendingHandshakes(min(most_newcomers, max(1, open_files // 4)), handshake_s)
        self._logged_at = float("-inf")
        self._asked = context.socket(zmq.REP)
        self._asked.setsockopt(zmq.LINGER, 0)
        self._asked.bind(_ZAP)
        _set_limits(socket)
        socket.setsockopt(zmq.HANDSHAKE_IVL, round(handshake_s * 1000))
        socket.zap_domain = _DOMAIN
        if keys:
            socket.curve_server = True
            socket.curve_secretkey = keys.server_secret.encode()
        else:
            socket.plain_server = True
        socket.monitor(_MONITOR, _EVENTS)
        self._told = context.socket(zmq.PAIR)
        self._told.setsockopt(zmq.LINGER, 0)
        self._told.connect(_MONITOR)
        self._thread = VitalThread(self._watch, name="ps-authenticator")
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _watch(self) -> None:
        poller = zmq.Poller()
        poller.register(self._asked, zmq.POLLIN)
        poller.register(self._told, zmq.POLLIN)
        try:
            while True:
                for socket, _ in poller.poll():
                    if socket is self._asked:
                        self._decide()
                    else:
                        event = parse_monitor_message(self._told.recv_multipart())
                        self._follow(event["event"], event["value"])
        except zmq.ContextTerminated:
            pass
        finally:
            self._asked.close()
            self._told.close()

    def _decide(self) -> None:
        """Answers a request of libzmq; its last frame is a key, or the password."""
        version, request, _, _, _, mechanism, *credentials = self._asked.recv_multipart()
        is_known = mechanism == self._mechanism and hmac.compare_digest(credentials[-1], self._expected)
        code, why = (b"200", b"OK") if is_known else (b"400", b"not of this job")
        self._asked.send_multipart([version, request, code, why, b"", b""])

    def _follow(self, event: int, value: int) -> None:
        if event == zmq.EVENT_ACCEPTED:
            if not self._newcomers.accept(value, time.monotonic()):
                self._refuse("too many that have not shown who they are")
                _close_connection(value)
        elif event == zmq.EVENT_DISCONNECTED:
            self._newcomers.close(value)
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._newcomers.complete(time.monotonic())
        elif event & _FAILED:
            self._refuse("no handshake, or without the token or the keys of this job")

    def _refuse(self, why: str) -> None:
        self.refused_connections += 1
        if time.monotonic() > self._logged_at + LOG_INTERVAL_S:
            self._logged_at = time.monotonic()
            _log.warning("a connection was refused, %d so far: %s", self.refused_connections, why)


def _set_limits(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES + _CURVE_BYTES)
    for option, value in _KEEPALIVE.items():
        socket.setsockopt(option, value)


def _close_connection(descriptor: int) -> None:
    """libzmq sees the end of the connection and closes it. Takes no descriptor of its own: there may be none left."""
    with contextlib.suppress(OSError):
        connection = sockets.socket(fileno=descriptor)
        try:
            connection.shutdown(sockets.SHUT_RDWR)
        finally:
            connection.detach()
