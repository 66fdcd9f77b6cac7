"""A ps on its socket: a ZeroMQ router in front, serving threads behind it, and the state of the ps in the middle.

ZeroMQ moves messages between router and threads without Python, and the threads release the GIL in the native core. So
requests of several workers are served at once, and a request costs Python some tens of microseconds.
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

_MAX_SAMPLE_S = 1.0  # what counts between two heartbeats, at most


class BusyTimer:
    """Measures how long each serving thread has been at one request.

    Ages are added up heartbeat by heartbeat, so time in which the whole process was stopped does not count. Serving
    threads call `track_request`, each with its number; the thread of the heartbeats calls `sample_busy_s`.
    """

    def __init__(self, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turns = [0] * threads  # requests begun and ended: odd while one is in work
        self._seen = [0] * threads
        self._ages_s = [0.0] * threads
        self._sampled_at = clock()

    @contextmanager
    def track_request(self, thread: int) -> Iterator[None]:
        """A request is in work."""
        self._turns[thread] += 1
        try:
            yield
        finally:
            self._turns[thread] += 1

    def sample_busy_s(self) -> float:
        """Seconds that the oldest request has been in work. To be called with every heartbeat."""
        now = self._clock()
        passed_s, self._sampled_at = min(now - self._sampled_at, _MAX_SAMPLE_S), now
        for thread, turn in enumerate(list(self._turns)):
            is_same = turn == self._seen[thread] and turn % 2 == 1
            self._ages_s[thread] = self._ages_s[thread] + passed_s if is_same else 0.0
            self._seen[thread] = turn
        return max(self._ages_s, default=0.0)


# Handlers of message kinds that the state of the ps does not serve. None: not yet; it is called again soon.
RequestHandlers = Mapping[MessageKind, Callable[[PsMessage], PsMessage | None]]

_log = logging.getLogger(__name__)

_LOCK_POLL_MS = 1  # between two attempts to serve requests that were delayed by the lock
_BACKUP_POLL_MS = 50  # between two checks whether the backup is still there


class PsServer:
    """Serves requests from its construction until `close`."""

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
        """Serves only clients with the token and, with `keys`, with the keys of the job."""
        self._ps_state = ps_state
        self._answers = answers
        self._keys = keys
        self._token = token_digest(token)
        self.shared_memories = SharedMemoryViews()  # of workers on this machine
        self._backup_timeout_s = backup_timeout_s  # a backup without a reply for so long is given up
        self._context = zmq.Context()
        self._front = self._context.socket(zmq.ROUTER)
        self._door = ZapAuthenticator(self._context, self._front, self._token, keys)
        where = f"tcp://{address}"
        if port:
            self._front.bind(f"{where}:{port}")
        self.address = f"{address}:{port or self._front.bind_to_random_port(where)}"
        self._back = self._context.socket(zmq.DEALER)
        self._back.setsockopt(zmq.LINGER, 0)
        self._back.setsockopt(zmq.SNDHWM, 1)  # no request waits long for a busy thread while another is idle
        self._back.bind("inproc://threads")
        self.busy_timer = BusyTimer(threads)
        self._malformed = 0
        self._denied = 0
        self._lock = threading.Lock()
        self._threads = [VitalThread(self._serve, args=(n,), name=f"serving-{n}") for n in range(threads)]
        self._threads.append(VitalThread(self._move, name="ps-router"))
        for thread in self._threads:
            thread.start()

    @property
    def malformed_messages(self) -> int:
        """The number of messages that could not be parsed."""
        return self._malformed

    @property
    def denied_count(self) -> int:
        """Connections that were refused, and requests without the token."""
        return self._denied + self._door.refused_connections

    def close(self) -> None:
        self._context.term()  # ends every wait; each thread closes the sockets it used
        for thread in self._threads:
            thread.join()
        self._door.join()

    def _move(self) -> None:
        try:
            zmq.proxy(self._front, self._back)
        except zmq.ContextTerminated:
            pass
        finally:
            self._front.close()
            self._back.close()

    def _serve(self, number: int) -> None:
        socket = self._context.socket(zmq.ROUTER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, 1)
        line = PeerSettings(self._context, self._token, self._keys, self._backup_timeout_s)
        thread = _ServingThread(socket, BackupForwarder(self._ps_state, socket, line))
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
        # The route back has two names: the proxy's, then the worker's.
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
            why = f"malformed: {exc}"
        except Exception as exc:  # of one message, whatever it was: this thread serves all
            _log.exception("a message that cannot be read")
            why = f"malformed: {exc!r}"
        with self._lock:
            self._malformed += 1
        _log.warning("malformed message: %s", why)
        return _refusal(request, why)

    def _answer(self, message: PsMessage) -> ServeResult | None:
        """Serves a message. None: the lock is held, and its holder may need this thread before it releases it."""
        try:
            if message.kind is MessageKind.OPEN_MEMORY:
                return ServeResult(self._open_memory(message))
            if message.kind in self._answers:
                reply = self._answers[message.kind](message)
                return ServeResult(reply) if reply else None
            return self._ps_state.serve(message, wait=not self._ps_state.has_backups)
        except RequestRefused as exc:
            why = str(exc)
        except Exception as exc:  # one request, whatever it was, must not end a thread that serves all
            _log.exception("%s: internal error", message.kind.name)
            why = f"{message.kind.name}: internal error: {exc!r}"
        return _refusal(message.request, why)

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
        """Waits for a request; returns None soon where something else is to be done."""
        has_more = bool(self.delayed or self.forwards)
        if has_more and not self.forwards.poll(_LOCK_POLL_MS if self.delayed else _BACKUP_POLL_MS):
            return None
        return self.socket.recv_multipart(copy=False)

    def answer(self, route: list[bytes], answer: ServeResult) -> None:
        if answer.backup:
            self.forwards.forward(route, answer)
        else:
            send_frames(self.socket, [*route, *messages.encode_message(answer.reply)])


def _refusal(request: int, why: str, status: ReplyStatus = ReplyStatus.REFUSED) -> ServeResult:
    return ServeResult(PsMessage(MessageKind.REPLY, request, status=status, text=why.encode()))
