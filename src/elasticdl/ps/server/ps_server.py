"""Serves a ps on its socket: a ZeroMQ router receives requests, serving threads behind it call the state of the ps.

ZeroMQ moves messages between router and threads without Python, and the threads release the GIL in the native core. So
requests of several workers are served at once, and Python spends some tens of microseconds on each.
"""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Self

import zmq

from elasticdl.ps.server.backup_forwarder import BackupForwarder, PeerSettings
from elasticdl.ps.tables.row_store import RequestRefused
from elasticdl.ps.tables.state import PsState, ServeResult
from elasticdl.ps.wire import messages
from elasticdl.ps.wire.authentication import ZapAuthenticator, token_digest
from elasticdl.ps.wire.connections import send_frames
from elasticdl.ps.wire.keys import CurveKeys
from elasticdl.ps.wire.messages import MalformedMessage, MessageKind, PsMessage, ReplyStatus, SharedMemoryNotFound
from elasticdl.ps.wire.shared_memory import SharedMemoryHandle, SharedMemoryViews
from elasticdl.vital import VitalThread

_MAX_SAMPLE_S = 1.0  # of the time between two heartbeats counts at most


class BusyTimer:
    """Measures how long each serving thread has been at one request.

    Ages are added up heartbeat by heartbeat, so time in which the whole process was stopped does not count. Serving
    threads call `track_request`, each with its number; the thread of the heartbeats calls `sample_busy_s`.
    """

    def __init__(self, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turns = [0] * threads  # requests begun and ended: odd while a request is served
        self._seen = [0] * threads
        self._ages_s = [0.0] * threads
        self._sampled_at = clock()

    @contextmanager
    def track_request(self, thread: int) -> Iterator[None]:
        """Marks a request of this thread as being served."""
        self._turns[thread] += 1
        try:
            yield
        finally:
            self._turns[thread] += 1

    def sample_busy_s(self) -> float:
        """Returns for how many seconds the oldest request has been served. Call it with every heartbeat."""
        now = self._clock()
        passed_s, self._sampled_at = min(now - self._sampled_at, _MAX_SAMPLE_S), now
        for thread, turn in enumerate(list(self._turns)):
            is_same = turn == self._seen[thread] and turn % 2 == 1
            self._ages_s[thread] = self._ages_s[thread] + passed_s if is_same else 0.0
            self._seen[thread] = turn
        return max(self._ages_s, default=0.0)


# Handlers of message kinds that the state of the ps does not serve. None: not ready; the handler is called again soon.
RequestHandlers = Mapping[MessageKind, Callable[[PsMessage], PsMessage | None]]

_log = logging.getLogger(__name__)

_LOCK_POLL_MS = 1  # between two attempts to serve requests that were delayed by the lock
_BACKUP_POLL_MS = 50  # between two checks whether the backup is still there


class PsServer:
    """Serves requests from `start` until `close`, or inside of `with`."""

    def __init__(
        self,
        ps_state: PsState,
        token: str,
        address: str,
        *,
        threads: int,
        port: int = 0,
        backup_timeout_s: float = 10.0,
        answers: RequestHandlers = MappingProxyType({}),
        keys: CurveKeys | None = None,
    ) -> None:
        """Serves only clients with the token and, with `keys`, with the keys of the job. Port 0: any free port."""
        self._ps_state = ps_state
        self._answers = answers
        self._keys = keys
        self._token = token_digest(token)
        self._host = address
        self._port = port
        self.shared_memories = SharedMemoryViews()  # of workers on this machine
        self._backup_timeout_s = backup_timeout_s  # a backup that has not replied for this long is given up
        self.busy_timer = BusyTimer(threads)
        self._authenticator = ZapAuthenticator(self._token, keys)
        self._malformed = 0
        self._denied = 0
        self._lock = threading.Lock()
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._thread_count = threads
        self._threads: list[VitalThread] = []

    def start(self) -> Self:
        """Binds the socket and starts the threads. Raises zmq.ZMQError if the port is taken."""
        context = self._context = zmq.Context()
        frontend = context.socket(zmq.ROUTER)
        self._authenticator.start(context, frontend)
        if self._port:
            frontend.bind(f"tcp://{self._host}:{self._port}")
        else:
            self._port = frontend.bind_to_random_port(f"tcp://{self._host}")
        backend = context.socket(zmq.DEALER)
        backend.setsockopt(zmq.LINGER, 0)
        backend.setsockopt(zmq.SNDHWM, 1)  # no request waits long for a busy thread while another is idle
        backend.bind("inproc://threads")
        self._threads = [
            *(VitalThread(self._serve, args=(context, n), name=f"serving-{n}") for n in range(self._thread_count)),
            VitalThread(self._route_requests, args=(frontend, backend), name="ps-router"),
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """HOST:PORT, once it has started."""
        return f"{self._host}:{self._port}"

    @property
    def malformed_messages(self) -> int:
        """The number of messages that could not be parsed."""
        return self._malformed

    @property
    def denied_count(self) -> int:
        """Connections that were refused, and requests without the token."""
        return self._denied + self._authenticator.refused_connections

    def close(self) -> None:
        if self._context is None:
            return
        self._context.term()  # ends every wait; each thread closes the sockets it used
        for thread in self._threads:
            thread.join()
        self._authenticator.join()

    @staticmethod
    def _route_requests(frontend: zmq.Socket[bytes], backend: zmq.Socket[bytes]) -> None:
        try:
            zmq.proxy(frontend, backend)
        except zmq.ContextTerminated:
            pass
        finally:
            frontend.close()
            backend.close()

    def _serve(self, context: zmq.Context[zmq.Socket[bytes]], number: int) -> None:
        socket = context.socket(zmq.ROUTER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, 1)
        peer_settings = PeerSettings(context, self._token, self._keys, self._backup_timeout_s)
        thread = _ServingThread(socket, BackupForwarder(self._ps_state, socket, peer_settings))
        try:
            socket.connect("inproc://threads")
            while True:
                request = thread.next_request()
                with self.busy_timer.track_request(number):
                    if request is not None:
                        self._serve_one(thread, request)
                    self._complete(thread)
        except zmq.ContextTerminated:
            pass
        finally:
            thread.forwards.close()
            socket.close()

    def _serve_one(self, thread: _ServingThread, frames: list[zmq.Frame]) -> None:
        # The route back has two identities: the proxy's, then the worker's.
        route, buffers = [frame.bytes for frame in frames[:2]], [frame.buffer for frame in frames[2:]]
        message = self._read(buffers)
        if isinstance(message, ServeResult):
            thread.answer(route, message)
        elif answer := self._answer(message):
            thread.answer(route, answer)
        else:
            thread.delayed.append((route, message))

    def _read(self, frames: list[memoryview]) -> PsMessage | ServeResult:
        """Checks the token, then decodes the message; nothing else is read without the token."""
        request = 0
        try:
            token, request = messages.read_token(frames)
            if not hmac.compare_digest(token, self._token):
                with self._lock:
                    self._denied += 1
                return _refusal(request, "wrong token", ReplyStatus.DENIED)
            return messages.decode_message(frames, self.shared_memories.find)
        except SharedMemoryNotFound as exc:
            return ServeResult(PsMessage(MessageKind.REPLY, exc.request, status=ReplyStatus.MEMORY_NOT_FOUND))
        except MalformedMessage as exc:
            reason = f"malformed: {exc}"
        except Exception as exc:  # one message must not end a thread that serves all workers
            _log.exception("a message that cannot be read")
            reason = f"malformed: {exc!r}"
        with self._lock:
            self._malformed += 1
        _log.warning("malformed message: %s", reason)
        return _refusal(request, reason)

    def _answer(self, message: PsMessage) -> ServeResult | None:
        """Serves a message. None: the lock is held, and its holder may need this thread to release it."""
        try:
            if message.kind is MessageKind.OPEN_MEMORY:
                return ServeResult(self._open_memory(message))
            if message.kind in self._answers:
                reply = self._answers[message.kind](message)
                return ServeResult(reply) if reply else None
            return self._ps_state.serve(message, wait=not self._ps_state.has_backups)
        except RequestRefused as exc:
            reason = str(exc)
        except Exception as exc:  # one request must not end a thread that serves all workers
            _log.exception("%s: internal error", message.kind.name)
            reason = f"{message.kind.name}: internal error: {exc!r}"
        return _refusal(message.request, reason)

    def _open_memory(self, message: PsMessage) -> PsMessage:
        """Opens the shared memory of a worker, if it is on this machine."""
        try:
            self.shared_memories.open(SharedMemoryHandle.decode(message.text))
        except SharedMemoryNotFound:
            return PsMessage(MessageKind.REPLY, message.request, status=ReplyStatus.MEMORY_NOT_FOUND)
        except ValueError as exc:
            raise RequestRefused(f"OPEN_MEMORY: {exc}") from exc
        return PsMessage(MessageKind.REPLY, message.request)

    def _complete(self, thread: _ServingThread) -> None:
        """Sends replies that the backup has confirmed, and serves requests that the lock delayed."""
        for route, reply in thread.forwards.completed_replies():
            send_frames(thread.socket, [*route, *messages.encode_message(reply)])
        while thread.delayed:
            route, message = thread.delayed[0]
            answer = self._answer(message)
            if answer is None:
                return
            thread.delayed.popleft()
            thread.answer(route, answer)


class _ServingThread:
    """The requests of one serving thread."""

    def __init__(self, socket: zmq.Socket[bytes], forwards: BackupForwarder) -> None:
        self.socket = socket
        self.forwards = forwards
        self.delayed: deque[tuple[list[bytes], PsMessage]] = deque()

    def next_request(self) -> list[zmq.Frame] | None:
        """Waits for a request. Returns None after a short time if there are replies or delayed requests to handle."""
        has_more = bool(self.delayed or self.forwards)
        if has_more and not self.forwards.poll(_LOCK_POLL_MS if self.delayed else _BACKUP_POLL_MS):
            return None
        return self.socket.recv_multipart(copy=False)

    def answer(self, route: list[bytes], answer: ServeResult) -> None:
        if answer.backup:
            self.forwards.forward(route, answer)
        else:
            send_frames(self.socket, [*route, *messages.encode_message(answer.reply)])


def _refusal(request: int, reason: str, status: ReplyStatus = ReplyStatus.REFUSED) -> ServeResult:
    return ServeResult(PsMessage(MessageKind.REPLY, request, status=status, text=reason.encode()))
