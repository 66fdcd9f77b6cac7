"""The stream of a worker or a ps to the master: messages that take effect once, and heartbeats.

A message is kept until the master has acknowledged it, and sent again after every reconnect, so that a master that is
killed loses none. Nothing here blocks the training loop.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NoReturn

import grpc

from elasticdl.errors import AccessDenied, MasterUnreachable, RunSuperseded, SpecError
from elasticdl.retry import backoff_delays
from elasticdl.rpc import channel as channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc import methods, security
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.vital import VitalThread, guard_process

_MIN_BACKOFF_S = 0.02
_MAX_BACKOFF_S = 0.5

_log = logging.getLogger(__name__)


class MasterSession:
    """The stream of one worker or ps. `on_message` is called in the session's own thread.

    So is `on_run_superseded`, if the job is in a later run than this process, which should then end.
    """

    def __init__(
        self,
        directory: JobDirectory,
        spec: JobSpec,
        hello: Callable[[], pb.Hello],
        heartbeat: Callable[[], pb.Heartbeat | pb.PsHeartbeat],
        on_message: Callable[[pb.MasterMessage], None],
        *,
        run: int,
        on_run_superseded: Callable[[RunSuperseded], None],
    ) -> None:
        self._directory = directory
        self._spec = spec
        self._hello = hello
        self._heartbeat = heartbeat
        self._on_message = on_message
        self._run_number = run
        self._on_run_superseded = on_run_superseded
        self._changed = threading.Condition()
        self._unacknowledged: deque[pb.WorkerMessage] = deque()  # whether they were sent or not
        self._sequence = 0
        self._connection = 0  # number of the connection that may send; the writers of older ones end
        self._closed = threading.Event()
        self._channel: grpc.Channel | None = None
        self._disconnected_at: float | None = time.monotonic()
        self._reader = VitalThread(self._run, name="elasticdl-session")

    def start(self) -> None:
        self._reader.start()

    @property
    def disconnected_s(self) -> float:
        """How long there has been no connection to the master; 0 while there is one."""
        disconnected_at = self._disconnected_at
        return 0.0 if disconnected_at is None else time.monotonic() - disconnected_at

    def send(self, message: pb.WorkerMessage) -> None:
        """Queues a message and returns at once. It takes effect exactly once, in the order of sending."""
        with self._changed:
            self._sequence += 1
            message.sequence = self._sequence
            self._unacknowledged.append(message)
            self._changed.notify_all()

    def close(self, goodbye_reason: str, timeout_s: float) -> bool:
        """Sends a goodbye and waits until all messages are acknowledged. Returns False if that takes too long."""
        self.send(pb.WorkerMessage(goodbye=pb.Goodbye(reason=goodbye_reason)))
        with self._changed:
            acknowledged = self._changed.wait_for(lambda: not self._unacknowledged, timeout=timeout_s)
        self.abort()
        return acknowledged

    def abort(self) -> None:
        """Ends the session without a goodbye, as if the process were killed."""
        with self._changed:
            self._closed.set()
            self._connection += 1
            self._changed.notify_all()
            channel = self._channel
        if channel is not None:
            channel.close()
        if self._reader.is_alive() and self._reader is not threading.current_thread():
            self._reader.join(timeout=1.0)

    def _run(self) -> None:
        delays = backoff_delays(_MIN_BACKOFF_S, _MAX_BACKOFF_S, jitter=0.0)
        while not self._closed.is_set():
            try:
                was_connected = self._connect()
            except (AccessDenied, MasterUnreachable, SpecError, OSError) as exc:  # OSError: no file descriptor is left
                _log.debug("no session: %s", exc)
                if not isinstance(exc, MasterUnreachable):
                    _log.error("%s", exc)
                was_connected = False
            except RunSuperseded as exc:
                self._on_run_superseded(exc)
                return
            if was_connected:
                delays = backoff_delays(_MIN_BACKOFF_S, _MAX_BACKOFF_S, jitter=0.0)
            self._closed.wait(next(delays))

    def _connect(self) -> bool:
        """Keeps one connection until it is lost. Returns whether the master sent anything on it."""
        address = channels.master_address(self._directory)
        is_connected = False
        channel = channels.open_channel(address, self._directory.tls_credentials(self._spec, self._hello().replica))
        with self._changed:
            if self._closed.is_set():
                channel.close()
                return False
            self._connection += 1
            self._channel = channel
            messages = self._outgoing_messages(self._connection)
        try:
            metadata = security.call_metadata(self._directory.load_token(), self._run_number)
            for message in methods.SESSION.bind(channel)(messages, metadata=metadata):
                is_connected, self._disconnected_at = True, None
                if message.WhichOneof("message") == "acknowledged":
                    self._acknowledge(message.acknowledged.sequence)
                else:
                    self._on_message(message)
        except grpc.RpcError as exc:
            if not is_connected:
                raise channels.error_from_grpc(exc, address) from exc
        except ValueError:
            # grpc raises it if another thread has closed the channel, as `abort` does.
            if not self._closed.is_set():
                raise
        finally:
            if self._disconnected_at is None:
                self._disconnected_at = time.monotonic()
            with self._changed:
                self._connection += 1
                self._changed.notify_all()
            channel.close()
        return is_connected

    def _acknowledge(self, sequence: int) -> None:
        with self._changed:
            while self._unacknowledged and self._unacknowledged[0].sequence <= sequence:
                self._unacknowledged.popleft()
            self._changed.notify_all()

    def _outgoing_messages(self, connection: int) -> Iterator[pb.WorkerMessage]:
        """Yields Hello, then all unacknowledged and all new messages, and a heartbeat whenever one is due."""
        with guard_process("the greeting of the master"):  # in grpc's thread an error would only end this connection
            hello = self._hello()
        yield pb.WorkerMessage(hello=hello)
        sent_sequence = 0
        heartbeat_at = time.monotonic()
        while True:
            message: pb.WorkerMessage | None = None
            with self._changed:
                while self._connection == connection:
                    message = next((queued for queued in self._unacknowledged if queued.sequence > sent_sequence), None)
                    wait_s = heartbeat_at - time.monotonic()
                    if message is not None or wait_s <= 0:
                        break
                    self._changed.wait(wait_s)
                if self._connection != connection:
                    return
            if message is not None:
                sent_sequence = message.sequence
                yield message
                continue
            with guard_process("the heartbeat"):
                heartbeat = self._heartbeat()
            yield _heartbeat_message(heartbeat)
            # A steady schedule: a late heartbeat does not delay the next ones, and missed ones are not sent later.
            now = time.monotonic()
            if heartbeat_at <= now:
                heartbeat_at = max(heartbeat_at + self._spec.timing.heartbeat_interval_s, now)


def _heartbeat_message(heartbeat: pb.Heartbeat | pb.PsHeartbeat) -> pb.WorkerMessage:
    if isinstance(heartbeat, pb.PsHeartbeat):
        return pb.WorkerMessage(ps_heartbeat=heartbeat)
    return pb.WorkerMessage(heartbeat=heartbeat)


def exit_superseded(exc: RunSuperseded) -> NoReturn:
    """Ends this worker or ps at once: its state belongs to a run of the job that a later run has replaced."""
    _log.error("%s", exc)
    logging.shutdown()
    os._exit(exc.exit_code)
