"""A worker's, or a ps', side of its one stream to the master: messages that take effect once, and heartbeats.

What is sent is kept until the master has acknowledged it, and sent again after every reconnect, so a
master that dies at any moment loses nothing. Nothing here ever blocks the training loop.
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
    """The stream of one worker or ps. `on_message` is called from the session's own reading thread.

    So is `on_run_over`, where the job is in another run than this process: nobody wants it any more, so it should end.
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
        on_run_over: Callable[[RunSuperseded], None],
    ) -> None:
        self._directory = directory
        self._spec = spec
        self._hello = hello
        self._heartbeat = heartbeat
        self._on_message = on_message
        self._run_number = run
        self._on_run_over = on_run_over
        self._changed = threading.Condition()
        self._kept: deque[pb.WorkerMessage] = deque()  # sent or not, but not acknowledged
        self._sequence = 0
        self._connection = 0  # which connection may send; an older one's writer sees it and ends
        self._closed = threading.Event()
        self._channel: grpc.Channel | None = None
        self._away_since: float | None = time.monotonic()
        self._reader = VitalThread(self._run, name="elasticdl-session")

    def start(self) -> None:
        self._reader.start()

    @property
    def disconnected_s(self) -> float:
        """How long the master has not been heard on any connection; 0 while there is one."""
        since = self._away_since
        return 0.0 if since is None else time.monotonic() - since

    def send(self, message: pb.WorkerMessage) -> None:
        """Queue a message. Returns at once; the message takes effect exactly once, in the order of sending."""
        with self._changed:
            self._sequence += 1
            message.sequence = self._sequence
            self._kept.append(message)
            self._changed.notify_all()

    def close(self, goodbye_reason: str, timeout_s: float) -> bool:
        """Say Goodbye and wait until the master has everything. False: it did not within `timeout_s`."""
        self.send(pb.WorkerMessage(goodbye=pb.Goodbye(reason=goodbye_reason)))
        with self._changed:
            acknowledged = self._changed.wait_for(lambda: not self._kept, timeout=timeout_s)
        self.abort()
        return acknowledged

    def abort(self) -> None:
        """Break off without a word, as a killed process does."""
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
                heard = self._connect()
            except (AccessDenied, MasterUnreachable, SpecError, OSError) as exc:  # of files, too: there may be no more
                _log.debug("no session: %s", exc)
                if not isinstance(exc, MasterUnreachable):
                    _log.error("%s", exc)
                heard = False
            except RunSuperseded as exc:
                self._on_run_over(exc)
                return
            if heard:
                delays = backoff_delays(_MIN_BACKOFF_S, _MAX_BACKOFF_S, jitter=0.0)
            self._closed.wait(next(delays))

    def _connect(self) -> bool:
        """Hold one connection until it breaks. True if the master was heard on it."""
        where = channels.master_address(self._directory)
        heard = False
        channel = channels.open_channel(where, self._directory.tls_credentials(self._spec, self._hello().replica))
        with self._changed:
            if self._closed.is_set():
                channel.close()
                return False
            self._connection += 1
            self._channel = channel
            writer = self._outgoing(self._connection)
        try:
            metadata = security.call_metadata(self._directory.load_token(), self._run_number)
            for message in methods.SESSION.bind(channel)(writer, metadata=metadata):
                heard, self._away_since = True, None
                if message.WhichOneof("message") == "acknowledged":
                    self._acknowledge(message.acknowledged.sequence)
                else:
                    self._on_message(message)
        except grpc.RpcError as exc:
            if not heard:
                raise channels.error_from_grpc(exc, where) from exc
        except ValueError:
            # grpc's way to say that another thread closed the channel under us: close() did.
            if not self._closed.is_set():
                raise
        finally:
            if self._away_since is None:
                self._away_since = time.monotonic()
            with self._changed:
                self._connection += 1
                self._changed.notify_all()
            channel.close()
        return heard

    def _acknowledge(self, sequence: int) -> None:
        with self._changed:
            while self._kept and self._kept[0].sequence <= sequence:
                self._kept.popleft()
            self._changed.notify_all()

    def _outgoing(self, connection: int) -> Iterator[pb.WorkerMessage]:
        """Hello, then all that is kept, then what comes; a heartbeat whenever one is due."""
        with guard_process("the greeting of the master"):  # the thread is grpc's, which would only end this connection
            hello = self._hello()
        yield pb.WorkerMessage(hello=hello)
        sent = 0
        beat_at = time.monotonic()
        while True:
            message: pb.WorkerMessage | None = None
            with self._changed:
                while self._connection == connection:
                    message = next((kept for kept in self._kept if kept.sequence > sent), None)
                    wait_s = beat_at - time.monotonic()
                    if message is not None or wait_s <= 0:
                        break
                    self._changed.wait(wait_s)
                if self._connection != connection:
                    return
            if message is not None:
                sent = message.sequence
                yield message
                continue
            with guard_process("the heartbeat"):
                beat = self._heartbeat()
            yield _heartbeat_message(beat)
            # A steady schedule: late once does not mean late ever after, and missed beats are not made up for.
            now = time.monotonic()
            beat_at = max(beat_at + self._spec.timing.heartbeat_interval_s, now) if beat_at <= now else beat_at


def _heartbeat_message(beat: pb.Heartbeat | pb.PsHeartbeat) -> pb.WorkerMessage:
    return pb.WorkerMessage(ps_heartbeat=beat) if isinstance(beat, pb.PsHeartbeat) else pb.WorkerMessage(heartbeat=beat)


def exit_run_over(exc: RunSuperseded) -> NoReturn:
    """End this worker or ps at once: its state is of a run that others have gone on from."""
    _log.error("%s", exc)
    logging.shutdown()
    os._exit(exc.exit_code)
