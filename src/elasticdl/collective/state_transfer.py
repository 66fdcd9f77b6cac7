"""State transfer: a newcomer receives the state and catches up while the others train.

The donor sends its state, then the reduced gradient of every later step. The
newcomer applies each with its own optimizer: the same update, hence the same bits. It
acknowledges every step, so the donor knows how far behind it is. The last update names the
round to enter.

Each end has a deadline: the donor aborts if the newcomer takes nothing, the newcomer if the donor sends nothing. A
donor without anything to send says so, because a step may take minutes.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch

from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.collective import frames
from elasticdl.collective.backlog import SLACK_BYTES, Backlog
from elasticdl.collective.channel import InterruptibleChannel
from elasticdl.collective.frames import Frame
from elasticdl.collective.peers import ConnectionPurpose, Greeting, PeerCredentials, connect_to_peer
from elasticdl.errors import RoundBroken

_log = logging.getLogger(__name__)

_ACKNOWLEDGED = struct.Struct("!q")  # the step that the newcomer has reached
_MAX_OVERTAKEN = 3  # states that were overtaken by updates before they were sent; one more would not help
_WAITING_PER_STALL = 4  # how often per `stall_s` an idle donor sends that it is alive


class StateSender:
    """The donor's end of one state transfer, over a plain or TLS connection; `start` begins it.

    The training thread adds frames between two steps and never waits here; a separate thread sends them and receives
    acknowledgements. The memory for frames is bounded, see `Backlog`; all are dropped when the transfer is over.
    """

    def __init__(
        self, worker: str, connection: socket.socket, *, stall_s: float, slack_bytes: int = SLACK_BYTES
    ) -> None:
        """`stall_s`: how long the newcomer may neither take nor acknowledge anything."""
        self.worker = worker
        self.began_at = time.monotonic()
        self._channel = InterruptibleChannel(connection, stall_s)
        self._stall_s = stall_s
        self._lock = threading.Lock()  # of the backlog
        self._backlog = Backlog(slack_bytes)
        self._acknowledged = -1
        self._sent_to = -1  # the step of the newest frame
        self._stride = 1  # steps of the newest update
        self.position = -1  # of the training, after the newest frame
        self._is_closed = False  # no more frames will be added
        self.is_over = False  # for the donor: closed or failed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"state-transfer-to-{worker}", daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    # ---- of the training thread

    @property
    def needs_state(self) -> bool:
        """Whether to send the state: at the start, and again after the newcomer could not keep up."""
        with self._lock:
            return self._backlog.needs_state and not self.is_over

    @property
    def is_following(self) -> bool:
        """Whether the newcomer can use the next update."""
        return self._backlog.is_following

    @property
    def has_begun(self) -> bool:
        """Whether any frame was added."""
        return self._sent_to >= 0

    @property
    def unsent_bytes(self) -> int:
        """The bytes that are not sent yet."""
        return self._backlog.unsent_bytes

    def is_caught_up(self, step: int, behind: int) -> bool:
        """Whether the newcomer is at most `behind` updates behind `step`."""
        return self.is_following and self._acknowledged >= step - behind * self._stride

    def send_state(self, state: CapturedState, position: int = -1) -> None:
        """Send the state, if the newcomer `needs_state`. The tensors are released one by one as they are sent."""
        header = {"kind": "state", "step": state.step, "records": state.records, "meta": state.meta}
        pieces = frames.split_frame(Frame(header, state.tensors))
        with self._lock:
            if self.is_over:
                return  # its thread ended meanwhile
            self._backlog.put_state(pieces)
            self._sent_to, self.position = state.step, position
        self._channel.wake()

    def send_update(
        self,
        step: int,
        update: Mapping[str, Any],
        tensors: Mapping[str, torch.Tensor],
        enter: int,
        position: int = -1,
        *,
        is_needed: bool = False,
    ) -> None:
        """Send the update that leads to `step`: its description as JSON values, its gradient and buffers.

        `enter` is the round to enter after it, 0 for none yet. Call it only while it `is_following`. If the frame
        exceeds what may be held, the newcomer does not follow any more, unless the update `is_needed` to enter.
        """
        pieces = frames.split_frame(Frame({"kind": "update", "step": step, "enter": enter, **update}, dict(tensors)))
        with self._lock:
            if self.is_over:
                return
            if self._backlog.put_update(pieces, is_last=is_needed or bool(enter)):
                self._sent_to, self._stride, self.position = step, max(1, step - self._sent_to), position
            elif self._backlog.overtaken >= _MAX_OVERTAKEN:
                reason = f"updates are made faster than this worker takes them, after {_MAX_OVERTAKEN} states sent"
                self._backlog.put_message(frames.split_frame(Frame({"kind": "gave up", "reason": reason}, {})))
                self.is_over = self._is_closed = True
        self._channel.wake()

    def restart(self) -> None:
        """An update could not be sent: only the whole state helps."""
        with self._lock:
            self._backlog.restart()

    def close(self) -> None:
        """Add no more frames; those already added are still sent."""
        self.is_over = self._is_closed = True
        self._channel.wake()

    def abort(self) -> None:
        """End the transfer now and drop its frames."""
        self.is_over = True
        with self._lock:
            self._backlog.discard()
        self._channel.abort()

    def wait(self, timeout_s: float) -> None:
        """After `close`: wait until the newcomer has received everything and closed the connection."""
        self._ended.wait(timeout_s)

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    # ---- of its own thread

    def _run(self) -> None:
        try:
            self._serve()
        except (OSError, ValueError) as exc:
            if not (self._is_closed or self._channel.is_aborted):
                _log.info("state transfer to %s ended: %s", self.worker, exc)
        finally:
            self.is_over = True
            with self._lock:
                self._backlog.discard()
            self._channel.close()
            self._ended.set()

    def _serve(self) -> None:
        moved_at = sent_at = time.monotonic()
        received = bytearray()
        while not self._channel.is_aborted:
            has_come, sent = self._listen(received), self._send()
            now = time.monotonic()
            if sent:
                sent_at = now
            is_awaited = self._is_awaited
            if has_come or sent or not is_awaited:
                moved_at = now
            if has_come or sent:
                continue
            if is_awaited:
                left_s = moved_at + self._stall_s - now
                if left_s <= 0:
                    raise TimeoutError(f"it took nothing for {self._stall_s:g} s (--timing state_transfer_timeout_s=…)")
            else:
                left_s = sent_at + self._stall_s / _WAITING_PER_STALL - now
                if left_s <= 0:
                    self._say_waiting()
                    continue
            self._channel.wait(left_s, to_send=not self._backlog.is_empty)

    @property
    def _is_awaited(self) -> bool:
        """Whether the newcomer must receive, acknowledge or close the connection."""
        is_behind = self.is_following and self._acknowledged < self._sent_to
        return is_behind or self._is_closed or not self._backlog.is_empty

    def _say_waiting(self) -> None:
        with self._lock:
            if self._backlog.is_empty:
                self._backlog.put_message(frames.split_frame(Frame({"kind": "waiting"}, {})))

    def _send(self) -> int:
        with self._lock:
            piece = self._backlog.next_piece()
        if piece is None:
            return 0
        count = self._channel.try_send(piece)
        with self._lock:
            self._backlog.mark_sent(count)
        return count

    def _listen(self, received: bytearray) -> bool:
        """Read the acknowledgements that have come; returns whether there were any."""
        part = bytearray(1024)
        count = self._channel.try_receive_into(memoryview(part))
        received += part[:count]
        complete = len(received) // _ACKNOWLEDGED.size * _ACKNOWLEDGED.size
        if complete:
            (self._acknowledged,) = _ACKNOWLEDGED.unpack_from(received, complete - _ACKNOWLEDGED.size)
            del received[:complete]
            with self._lock:
                if self.is_following and self._acknowledged >= self._sent_to:
                    self._backlog.overtaken = 0
        return count > 0


class StateReceiver:
    """The newcomer's end: it connects, then follows the donor until it says which round to enter."""

    def __init__(self, connection: socket.socket, *, stall_s: float, max_bytes: int = frames.MEMORY_BYTES) -> None:
        """`stall_s`: how long the donor may send nothing. A frame may have `max_bytes` of tensors."""
        self._channel = InterruptibleChannel(connection, stall_s)
        self._max_bytes = max_bytes

    @classmethod
    def connect(cls, address: str, credentials: PeerCredentials, timeout_s: float, stall_s: float) -> StateReceiver:
        """Ask the worker at `address` for its state; `timeout_s` is for the connection and the greeting."""
        greeting = Greeting(credentials.worker, ConnectionPurpose.STATE, credentials.run)
        try:
            connection = connect_to_peer(address, credentials, greeting, timeout_s)
        except OSError as exc:
            raise RoundBroken(f"no state transfer from {address}: {exc}") from exc
        return cls(connection, stall_s=stall_s)

    def follow(self, on_state: Callable[[CapturedState], None], on_update: Callable[[Frame], None]) -> int:
        """Apply states and updates until one names the round to enter; returns its id.

        Raises RoundBroken if the donor is gone.
        """
        while True:
            frame = self._next()
            header = frame.header
            if header["kind"] == "state":
                on_state(CapturedState(header["step"], header["records"], frame.tensors, header["meta"]))
            else:
                on_update(frame)
            self._acknowledge(header["step"])
            if header.get("enter"):
                return int(header["enter"])

    def _next(self) -> Frame:
        """The next state or update, with a checked header."""
        try:
            while True:
                frame = frames.receive_frame(self._channel, self._max_bytes)
                if is_state_frame(frame):
                    return frame
        except OSError as exc:
            raise RoundBroken(f"no state from the donor: {exc}") from exc

    def _acknowledge(self, step: int) -> None:
        try:
            self._channel.sendall(_ACKNOWLEDGED.pack(step))
        except OSError as exc:
            raise RoundBroken(f"the donor is gone: {exc}") from exc

    def abort(self) -> None:
        """End `follow` from another thread."""
        self._channel.abort()

    def close(self) -> None:
        self._channel.close()


def is_state_frame(frame: Frame) -> bool:
    """Whether a donor's frame is a state or an update with a correct header.

    Raises ConnectionError for a frame that ends the transfer, or that does not belong to one.
    """
    kind, header = frame.header.get("kind"), frame.header
    if kind == "waiting":
        return False
    if kind == "gave up":
        raise ConnectionError(f"it gave up: {header.get('reason')}")
    _check_number(header, "step")
    if kind == "state" and isinstance(header.get("meta"), dict):
        _check_number(header, "records")
    elif kind == "update":
        _check_number(header, "enter")
    else:
        raise ConnectionError(f"a frame of kind {kind!r} that cannot be read")
    return True


def _check_number(header: Mapping[str, Any], name: str) -> None:
    value = header.get(name)
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ConnectionError(f"a frame whose {name} is {value!r}")
