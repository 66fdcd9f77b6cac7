"""A connection that one thread reads and writes, and that any other thread can interrupt.

Two threads must not use an `ssl.SSLSocket` at once, so a thread that blocks in one cannot be woken by shutting it
down. Therefore the socket never blocks: its thread waits for it and for a descriptor that wakes the thread. Plain and
TLS connections behave alike.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
import threading
import time

# One write: large enough to cost little, small enough for a TLS connection to give up its turn.
CHUNK_BYTES = 1 << 20


class InterruptibleChannel:
    """A socket of one thread. Other threads may call `wake` and `abort` only."""

    def __init__(self, connection: socket.socket, stall_s: float) -> None:
        """`stall_s`: how long `sendall` and `recv_into` wait for the peer to take or send a byte."""
        connection.setblocking(False)
        self._connection = connection
        self._stall_s = stall_s
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_closed = False
        self._closing = threading.Lock()  # the number of a closed descriptor may be given to another file
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._selector.register(connection, selectors.EVENT_READ)
        self._reads_by_writing = self._writes_by_reading = False  # TLS may need either
        self.is_aborted = False

    def wake(self) -> None:
        """End the owner's `wait`, this one or the next. From any thread; does nothing once the channel is closed."""
        with self._closing:
            if not self._is_closed:
                os.eventfd_write(self._wake, 1)

    def abort(self) -> None:
        """Let the owner's `sendall` and `recv_into` raise ConnectionError. From any thread."""
        self.is_aborted = True
        self.wake()

    def close(self) -> None:
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
        self._selector.close()
        self._connection.close()
        os.close(self._wake)

    # ---- without waiting

    def try_send(self, view: memoryview) -> int:
        """Send what the socket takes now, at most CHUNK_BYTES; the number of bytes, perhaps 0."""
        self._writes_by_reading = False
        try:
            return self._connection.send(view[:CHUNK_BYTES])
        except (BlockingIOError, ssl.SSLWantWriteError):
            return 0
        except ssl.SSLWantReadError:
            self._writes_by_reading = True
            return 0

    def try_receive_into(self, view: memoryview) -> int:
        """Receive what has come; the number of bytes, perhaps 0. Raises ConnectionError if the peer closed it."""
        self._reads_by_writing = False
        try:
            received = self._connection.recv_into(view)
        except (BlockingIOError, ssl.SSLWantReadError):
            return 0
        except ssl.SSLWantWriteError:
            self._reads_by_writing = True
            return 0
        if not received:
            raise ConnectionError("the peer closed the stream")
        return received

    def wait(self, timeout_s: float, *, to_send: bool) -> None:
        """Wait until bytes have come, bytes can be sent (if `to_send`), or `wake` is called."""
        is_writing = self._reads_by_writing or (to_send and not self._writes_by_reading)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_writing else 0)
        self._selector.modify(self._connection, events)
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            if key.fileobj == self._wake:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)

    # ---- waiting, as a blocking socket does

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all of `data`. Raises OSError if the peer is gone or takes nothing for `stall_s`."""
        view = memoryview(data).cast("B")
        while view:
            view = view[self._transfer_some(view, is_sending=True) :]

    def recv_into(self, view: memoryview) -> int:
        """Receive at least one byte. Raises OSError if the peer is gone or sends nothing for `stall_s`."""
        return self._transfer_some(view, is_sending=False)

    def _transfer_some(self, view: memoryview, *, is_sending: bool) -> int:
        deadline = time.monotonic() + self._stall_s
        while True:
            if self.is_aborted:
                raise ConnectionError("the connection was aborted")
            if moved := self.try_send(view) if is_sending else self.try_receive_into(view):
                return moved
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"the peer {'took' if is_sending else 'sent'} nothing for {self._stall_s:g} s")
            self.wait(left_s, to_send=is_sending)
