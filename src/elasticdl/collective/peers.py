"""The one listening port of a worker, for its peers only. Unauthenticated callers cost next to nothing.

Both sides prove that they hold the job's token without sending it: the listener sends a nonce, the caller answers with
a greeting, a nonce of its own and a keyed digest of all three, and the listener answers with its own digest. In a job
with TLS this happens inside a connection whose two certificates were checked.

Greetings are short, have a deadline, and their number at a time is limited (listener.py).
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import secrets
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Self

from elasticdl.errors import AccessDenied
from elasticdl.listener import Caller, Conversation, Listener, receive_bytes
from elasticdl.tls import Role, TlsCredentials, check_peer

_log = logging.getLogger(__name__)

_MAGIC = b"EDL1"
_CHALLENGE = struct.Struct("!4s32s")  # magic, the listener's nonce
_ANSWER = struct.Struct("!H32s32s")  # length of the greeting that follows, the caller's nonce, its proof
_PROOF_BYTES = 32
_MAX_GREETING_BYTES = 1024


class ConnectionPurpose(StrEnum):
    STATE = "state"  # a newcomer asks for the training state
    ROUND = "round"  # a member of a round connects to another


@dataclass(frozen=True, slots=True)
class Greeting:
    """The worker that connects, and the purpose of the connection."""

    worker: str
    purpose: ConnectionPurpose
    run: int = 0
    round: int = 0
    rank: int = 0

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, text: bytes) -> Greeting:
        """Decode a greeting. Raises ConnectionError if `text` is not one."""
        try:
            fields = json.loads(text)
            greeting = cls(
                fields["worker"], ConnectionPurpose(fields["purpose"]), fields["run"], fields["round"], fields["rank"]
            )
        except (KeyError, TypeError, ValueError, RecursionError) as exc:
            raise ConnectionError(f"a greeting that cannot be read: {exc}") from exc
        numbers = (greeting.run, greeting.round, greeting.rank)
        if not isinstance(greeting.worker, str) or any(type(n) is not int or not 0 <= n < 1 << 63 for n in numbers):
            raise ConnectionError("a greeting whose fields are of the wrong kind")
        return greeting


@dataclass(frozen=True, slots=True)
class PeerCredentials:
    """The credentials that a worker shows its peers and expects from them."""

    worker: str
    token: str
    run: int = 0
    tls: TlsCredentials | None = None

    def check_certificate(self, connection: ssl.SSLSocket, worker: str = "") -> None:
        """Raise ConnectionError unless the certificate is that of a worker of this job; of `worker`, if named."""
        assert self.tls is not None
        try:
            peer = check_peer(connection, self.tls, Role.WORKER)
        except AccessDenied as exc:
            raise ConnectionError(str(exc)) from exc
        if worker and peer is not None and not peer.speaks_for(worker):
            raise ConnectionError(f"{peer.name} calls itself {worker}")

    def prove(self, side: bytes, listener_nonce: bytes, caller_nonce: bytes, greeting: bytes) -> bytes:
        return hmac.digest(self.token.encode(), side + listener_nonce + caller_nonce + greeting, "sha256")


# Owns the connection, which blocks. Called in the listener's thread.
ConnectionHandler = Callable[[Greeting, socket.socket], None]


class PeerListener:
    """Listens from `start` until `close`, or inside of `with`; gives each connection to the handler of its purpose."""

    def __init__(
        self,
        address: str,
        credentials: PeerCredentials,
        handlers: Mapping[ConnectionPurpose, ConnectionHandler],
        *,
        greeting_s: float = 5.0,
        max_callers: int = 64,
    ) -> None:
        self._credentials = credentials
        self._handlers = handlers
        self._context: ssl.SSLContext | None = None
        self._context_until = 0.0
        self._logged_at = float("-inf")
        self.refused = 0  # callers without the token, or too slow, or one too many
        self._listener = Listener(
            address, 0, self._greet, self._refuse, name="peers", conversation_s=greeting_s, max_callers=max_callers
        )

    def start(self) -> Self:
        """Raises OSError if it cannot listen on a port."""
        self._listener.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """HOST:PORT, once it has started."""
        return f"{self._listener.address}:{self._listener.port}"

    @property
    def is_paused(self) -> bool:
        """Whether it waits for descriptors to become free."""
        return self._listener.is_paused

    def close(self) -> None:
        self._listener.close()

    def _greet(self, caller: Caller) -> Conversation:
        mine = self._credentials
        caller.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if mine.tls is not None:
            context = self._server_context(mine.tls)
            encrypted = context.wrap_socket(caller.connection, server_side=True, do_handshake_on_connect=False)
            caller.connection = encrypted
            while (event := _try_handshake(encrypted)) != 0:
                yield event
            mine.check_certificate(encrypted)
        nonce = secrets.token_bytes(32)
        caller.connection.send(_CHALLENGE.pack(_MAGIC, nonce))  # the buffer of a new connection has room
        length, caller_nonce, proof = _ANSWER.unpack((yield from _read(caller.connection, _ANSWER.size)))
        if length > _MAX_GREETING_BYTES:
            raise ConnectionError(f"a greeting of {length} bytes")
        text = yield from _read(caller.connection, length)
        if not hmac.compare_digest(proof, mine.prove(b"caller", nonce, caller_nonce, text)):
            raise ConnectionError("no proof of the job's token")
        greeting = Greeting.decode(text)
        if greeting.run != mine.run:
            raise ConnectionError(f"{greeting.worker} belongs to run {greeting.run} of the job, this is {mine.run}")
        if isinstance(caller.connection, ssl.SSLSocket):
            mine.check_certificate(caller.connection, greeting.worker)
        caller.connection.send(mine.prove(b"listener", nonce, caller_nonce, text))
        return partial(self._call_handler, greeting, caller)

    def _call_handler(self, greeting: Greeting, caller: Caller) -> None:
        try:
            caller.connection.setblocking(True)
            self._handlers[greeting.purpose](greeting, caller.connection)
        except Exception:
            _log.exception("a connection of %s, %s, was not taken", greeting.worker, greeting.purpose)
            caller.connection.close()

    def _refuse(self, exc: Exception) -> None:
        self.refused += 1
        now = time.monotonic()
        if now - self._logged_at > 1.0:  # a flood of strangers is not a flood in the log
            _log.warning("a caller was refused, %d so far: %s", self.refused, str(exc) or repr(exc))
            self._logged_at = now

    def _server_context(self, tls: TlsCredentials) -> ssl.SSLContext:
        """The context of the newest certificate, which is read once a second at most, however many connect."""
        now = time.monotonic()
        if self._context is None or now > self._context_until:
            self._context, self._context_until = tls.server_context(), now + 1.0
        return self._context


def connect_to_peer(address: str, credentials: PeerCredentials, greeting: Greeting, timeout_s: float) -> socket.socket:
    """Connect to the listener at `address`; the connection blocks. Raises OSError if it does not open in time."""
    deadline = time.monotonic() + timeout_s
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if credentials.tls is not None:
            connection = credentials.tls.client_context().wrap_socket(connection)
            credentials.check_certificate(connection)
        magic, listener_nonce = _CHALLENGE.unpack(_read_until(connection, _CHALLENGE.size, deadline))
        if magic != _MAGIC:
            raise ConnectionError(f"{address} is no worker of ElasticDL")
        text, nonce = greeting.encode(), secrets.token_bytes(32)
        proof = credentials.prove(b"caller", listener_nonce, nonce, text)
        connection.sendall(_ANSWER.pack(len(text), nonce, proof) + text)
        answer = _read_until(connection, _PROOF_BYTES, deadline)
        if not hmac.compare_digest(answer, credentials.prove(b"listener", listener_nonce, nonce, text)):
            raise ConnectionError(f"{address} does not hold the token of this job")
        connection.settimeout(None)
        return connection
    except BaseException:
        connection.close()
        raise


def shut_down(connection: socket.socket) -> None:
    """End all operations that block in the connection, here and at the other end. From any thread."""
    with contextlib.suppress(OSError):
        # Not the method of SSLSocket: a thread that reads would go on with encrypted bytes.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _try_handshake(connection: ssl.SSLSocket) -> int:
    """Go on with the handshake; 0 when it is done, else the event to wait for."""
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        return selectors.EVENT_READ
    except ssl.SSLWantWriteError:
        return selectors.EVENT_WRITE
    return 0


def _read(connection: socket.socket, count: int) -> Generator[int, None, bytes]:
    received = b""
    while len(received) < count:
        received += yield from receive_bytes(connection, count - len(received))
    return received


def _read_until(connection: socket.socket, count: int, deadline: float) -> bytes:
    received = b""
    while len(received) < count:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        more = connection.recv(count - len(received))
        if not more:
            raise ConnectionError("the worker closed the connection: it belongs to another job, or is ending")
        received += more
    return received
