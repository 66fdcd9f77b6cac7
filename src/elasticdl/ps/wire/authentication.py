"""Authenticates connections to a ps: only clients with the job's token, or its keys, can send messages.

libzmq calls the authenticator in the handshake of every connection (ZAP, RFC 27). Without keys the client sends the
token as the password of PLAIN; with keys the mechanism is CURVE. Until the authenticator has replied, only the
handshake of a connection is read: no message is received, decoded or queued. The cost of unauthenticated connections
is bounded: each has HANDSHAKE_S for the whole handshake and a frame of FRAME_BYTES, and at most MAX_PENDING_HANDSHAKES
are in a handshake at once. Further ones are closed; clients of the job reconnect by themselves a moment later.
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
LOG_INTERVAL_S = 60.0  # between two warnings about refused connections
_CURVE_BYTES = 64  # more than CURVE adds to a frame
# The kernel acknowledges for a stopped process, but not if the machine is gone.
_KEEPALIVE = {zmq.TCP_KEEPALIVE: 1, zmq.TCP_KEEPALIVE_IDLE: 60, zmq.TCP_KEEPALIVE_INTVL: 10, zmq.TCP_KEEPALIVE_CNT: 6}
_ZAP = "inproc://zeromq.zap.01"  # the endpoint at which libzmq requests authentication
_MONITOR = "inproc://handshakes"
_DOMAIN = b"elasticdl.ps"
_USER = b"elasticdl"
_FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | _FAILED

_log = logging.getLogger(__name__)


def token_digest(token: str) -> bytes:
    """The digest of the job's token that handshakes and messages carry."""
    return blake2b(token.encode(), digest_size=16).digest()


def connect_socket(
    context: zmq.Context[zmq.Socket[bytes]], address: str, token: bytes, keys: CurveKeys | None
) -> zmq.Socket[bytes]:
    """Opens a socket to the ps at this address, which authenticates with the digest of the token, or with the keys."""
    socket = context.socket(zmq.DEALER)
    _set_limits(socket)
    if keys:
        keys.configure_client(socket)
    else:
        socket.plain_username, socket.plain_password = _USER, token.hex().encode()
    socket.connect(f"tcp://{address}")
    return socket


class PendingHandshakes:
    """Counts connections that may still be in their handshake. Pure.

    libzmq does not report which connection a successful handshake belongs to. So successes are counted for as long as
    a handshake may last. After that time every descriptor that is still open belongs to an authenticated connection.
    """

    def __init__(self, max_pending: int, handshake_s: float) -> None:
        self._max_pending = max_pending
        self._handshake_s = handshake_s
        self._accepted: dict[int, float] = {}  # by descriptor, the oldest first
        self._succeeded: deque[float] = deque()

    def accept(self, descriptor: int, now: float) -> bool:
        """Adds a connection; returns whether it may stay open."""
        self._forget(now - self._handshake_s)
        self._accepted.pop(descriptor, None)
        self._accepted[descriptor] = now
        return len(self._accepted) - len(self._succeeded) <= self._max_pending

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
    """Authenticates the connections of a socket, in a thread that ends when the socket's context is terminated."""

    def __init__(self, token: bytes, keys: CurveKeys | None) -> None:
        self.refused_connections = 0
        self._keys = keys
        self._mechanism = b"CURVE" if keys else b"PLAIN"
        self._expected = z85.decode(keys.client_public.encode()) if keys else token.hex().encode()
        # A quarter of the descriptors at most: files must be opened, too.
        open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._handshakes = PendingHandshakes(min(MAX_PENDING_HANDSHAKES, max(1, open_files // 4)), HANDSHAKE_S)
        self._logged_at = float("-inf")
        self._thread: VitalThread | None = None

    def start(self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes]) -> None:
        """Begins to authenticate the connections of `socket`, which is not bound yet."""
        requests = context.socket(zmq.REP)
        requests.setsockopt(zmq.LINGER, 0)
        requests.bind(_ZAP)
        _set_limits(socket)
        socket.setsockopt(zmq.HANDSHAKE_IVL, round(HANDSHAKE_S * 1000))
        socket.zap_domain = _DOMAIN
        if self._keys:
            socket.curve_server = True
            socket.curve_secretkey = self._keys.server_secret.encode()
        else:
            socket.plain_server = True
        socket.monitor(_MONITOR, _EVENTS)
        events = context.socket(zmq.PAIR)
        events.setsockopt(zmq.LINGER, 0)
        events.connect(_MONITOR)
        self._thread = VitalThread(self._run, args=(requests, events), name="ps-authenticator")
        self._thread.start()

    def join(self) -> None:
        """Waits until the thread has ended. The context must have been terminated."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, requests: zmq.Socket[bytes], events: zmq.Socket[bytes]) -> None:
        poller = zmq.Poller()
        poller.register(requests, zmq.POLLIN)
        poller.register(events, zmq.POLLIN)
        try:
            while True:
                for socket, _ in poller.poll():
                    if socket is requests:
                        self._answer_request(requests)
                    else:
                        event = parse_monitor_message(events.recv_multipart())
                        self._handle_event(event["event"], event["value"])
        except zmq.ContextTerminated:
            pass
        finally:
            requests.close()
            events.close()

    def _answer_request(self, requests: zmq.Socket[bytes]) -> None:
        """Answers an authentication request of libzmq, whose last frame is a key or the password."""
        version, request, _, _, _, mechanism, *credentials = requests.recv_multipart()
        is_valid = mechanism == self._mechanism and hmac.compare_digest(credentials[-1], self._expected)
        code, reason = (b"200", b"OK") if is_valid else (b"400", b"not of this job")
        requests.send_multipart([version, request, code, reason, b"", b""])

    def _handle_event(self, event: int, descriptor: int) -> None:
        if event == zmq.EVENT_ACCEPTED:
            if not self._handshakes.accept(descriptor, time.monotonic()):
                self._count_refused("too many connections that are not authenticated yet")
                _close_connection(descriptor)
        elif event == zmq.EVENT_DISCONNECTED:
            self._handshakes.close(descriptor)
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._handshakes.complete(time.monotonic())
        elif event & _FAILED:
            self._count_refused("no handshake, or without the token or the keys of this job")

    def _count_refused(self, reason: str) -> None:
        self.refused_connections += 1
        if time.monotonic() > self._logged_at + LOG_INTERVAL_S:
            self._logged_at = time.monotonic()
            _log.warning("a connection was refused, %d so far: %s", self.refused_connections, reason)


def _set_limits(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES + _CURVE_BYTES)
    for option, value in _KEEPALIVE.items():
        socket.setsockopt(option, value)


def _close_connection(descriptor: int) -> None:
    """Shuts a connection of libzmq down, which then closes it. Needs no new descriptor: there may be none left."""
    with contextlib.suppress(OSError):
        connection = sockets.socket(fileno=descriptor)
        try:
            connection.shutdown(sockets.SHUT_RDWR)
        finally:
            connection.detach()
