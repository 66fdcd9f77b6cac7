"""Hand-over of the state: a newcomer catches up while the others train.

The donor sends an image of its state, then the reduced gradient of every later step. The
newcomer applies each with its own optimizer: the same update, hence the same bits. It
acknowledges every step, so the donor knows how far behind it is. The update that ends the
hand-over names the round to enter.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from elasticdl.checkpoint.image import Image
from elasticdl.collective import frames
from elasticdl.collective.frames import Frame
from elasticdl.errors import RoundBroken

_log = logging.getLogger(__name__)

# A newcomer that is this many updates behind gets a fresh image instead.
_MAX_BEHIND = 32


class Donation:
    """The donor's end of one hand-over. Fed by the training thread between two steps; sends from its own."""

    def __init__(self, worker: str, connection: socket.socket) -> None:
        self.worker = worker
        self._connection = connection
        self._outgoing: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._acknowledged = -1
        self._sent_to = -1
        self._stride = 1  # steps of the newest update
        self.is_over = False
        self._ended = threading.Event()
        threading.Thread(target=self._send, name=f"handover-to-{worker}", daemon=True).start()
        threading.Thread(target=self._listen, name=f"handover-from-{worker}", daemon=True).start()

    @property
    def needs_image(self) -> bool:
        """At the start, and again when the newcomer cannot keep up with the updates."""
        return self._sent_to < 0 or self._sent_to - max(self._acknowledged, 0) > _MAX_BEHIND * self._stride

    def is_close(self, step: int, behind: int) -> bool:
        """Whether the newcomer is at most `behind` updates behind `step`."""
        return not self.needs_image and self._acknowledged >= step - behind * self._stride

    def give_image(self, image: Image) -> None:
        header = {"kind": "image", "step": image.step, "records": image.records, "meta": image.meta}
        self._outgoing.put(Frame(header, image.tensors))
        self._sent_to, self._acknowledged = image.step, -1 if self._sent_to < 0 else self._acknowledged

    def give_update(
        self, step: int, update: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], enter: int
    ) -> None:
        """What leads to `step`: an update's description as JSON values, its gradient and buffers.

        `enter` is the round to enter after it, 0 for none yet.
        """
        self._outgoing.put(Frame({"kind": "update", "step": step, "enter": enter, **update}, dict(tensors)))
        self._sent_to, self._stride = step, max(1, step - self._sent_to)

    def start_over(self) -> None:
        """An update could not be given: only an image helps."""
        self._sent_to = -1

    def close(self) -> None:
        self.is_over = True
        self._outgoing.put(None)

    def abort(self) -> None:
        self.close()
        _shut(self._connection)

    def wait(self, timeout_s: float) -> None:
        """After `close`: until the newcomer has taken all it was given and hung up."""
        self._ended.wait(timeout_s)

    def _send(self) -> None:
        try:
            while (frame := self._outgoing.get()) is not None:
                frames.send(self._connection, frame)
        except OSError as exc:
            _log.info("hand-over to %s ended: %s", self.worker, exc)
            self.is_over = True

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._acknowledged = int(frames.receive(self._connection).header["step"])
        self.is_over = True
        self._connection.close()
        self._ended.set()


class Desk:
    """Where newcomers ask for the state: listens, checks the token, opens a donation for each."""

    def __init__(self, address: str, token: str, on_donation: Callable[[Donation], None]) -> None:
        self._token = token
        self._on_donation = on_donation
        self._listener = socket.create_server((address, 0))
        self.address = f"{address}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name="handover-desk", daemon=True).start()

    def close(self) -> None:
        _shut(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._greet, args=(connection,), name="handover-greeting", daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(5.0)  # a stranger may not hold the desk
        try:
            asked = frames.receive_greeting(connection)
        except OSError:
            connection.close()
            return
        if not hmac.compare_digest(str(asked.get("token", "")).encode(), self._token.encode()):
            _log.warning("hand-over refused: wrong token")
            connection.close()
            return
        connection.settimeout(None)
        self._on_donation(Donation(str(asked.get("worker", "")), connection))


class Reception:
    """The newcomer's end: connect, then follow the donor until it says which round to enter."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    @classmethod
    def connect(cls, address: str, token: str, worker: str, timeout_s: float) -> Reception:
        host, port = address.rsplit(":", 1)
        try:
            connection = socket.create_connection((host, int(port)), timeout=timeout_s)
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            frames.send(connection, Frame({"token": token, "worker": worker}, {}))
        except OSError as exc:
            raise RoundBroken(f"no hand-over from {address}: {exc}") from exc
        return cls(connection)

    def follow(self, on_image: Callable[[Image], None], on_update: Callable[[Frame], None]) -> int:
        """Apply what comes until told to enter a round; its id. Raises RoundBroken where the donor is gone."""
        try:
            while True:
                frame = frames.receive(self._connection)
                step = int(frame.header["step"])
                if frame.header["kind"] == "image":
                    header = frame.header
                    on_image(Image(step, int(header["records"]), frame.tensors, header["meta"]))
                else:
                    on_update(frame)
                frames.send(self._connection, Frame({"step": step}, {}))
                if frame.header.get("enter"):
                    return int(frame.header["enter"])
        except OSError as exc:
            raise RoundBroken(f"the donor is gone: {exc}") from exc

    def abort(self) -> None:
        """End `follow` from another thread."""
        _shut(self._connection)

    def close(self) -> None:
        self._connection.close()


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
