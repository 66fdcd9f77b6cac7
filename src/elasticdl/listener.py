"""A listening socket for unauthenticated callers: one thread, a limit of callers, and a deadline for each.

A caller can keep the port busy, and do nothing worse: a slow caller, or one beyond the limit, is disconnected. When
descriptors run out, all callers are disconnected and none is accepted for a moment; the listener never ends for that.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Generator

from elasticdl.vital import VitalThread

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE_S = 0.1  # pause of accepting, when descriptors have run out

# Yields the selector's event that it waits for. At its end the connection is closed, unless it returns a function that
# takes the connection over, which is called after the listener has forgotten the connection.
Conversation = Generator[int, None, Callable[[], None] | None]


class Caller:
    """A connected caller. A conversation may replace the plain connection by one with TLS."""

    conversation: Conversation

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self.connection = connection
        self.descriptor = connection.fileno()
        self.deadline = deadline


class Listener:
    """Listens on a port between `start` and `close`, in a thread of its own. Port 0 means any free port."""

    def __init__(
        self,
        address: str,
        port: int,
        converse: Callable[[Caller], Conversation],
        on_failure: Callable[[Exception], None],
        *,
        name: str,
        conversation_s: float,
        max_callers: int,
    ) -> None:
        """Both functions are called in the listener's thread, and must neither block nor raise.

        `on_failure` gets the error of every conversation that failed: TimeoutError if it took too long,
        ConnectionError if there were too many callers.
        """
        self.address = address
        self.port = port  # after `start`, the one it listens on
        self._converse = converse
        self._on_failure = on_failure
        self._conversation_s = conversation_s
        self._max_callers = max_callers
        self._callers: dict[int, Caller] = {}  # by descriptor, the oldest first
        self._paused_until = 0.0
        self._is_closed = False
        self._thread = VitalThread(self._run, name=name)

    def start(self) -> None:
        """Raises OSError if it cannot listen on the port."""
        self._listener = socket.create_server((self.address, self.port), backlog=256)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()

    @property
    def is_paused(self) -> bool:
        """Whether the listener waits for free descriptors."""
        return self._paused_until > 0

    def close(self) -> None:
        if self._thread.ident is not None and not self._is_closed:
            self._is_closed = True
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            self._selector.close()
            self._listener.close()
            os.close(self._wake)

    def _run(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select(self._timeout_s()):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, Caller) and self._callers.get(key.fd) is key.data:  # else dropped just now
                    self._advance(key.data)
            self._drop_late()
        for caller in list(self._callers.values()):
            self._drop(caller)

    def _timeout_s(self) -> float | None:
        """The time until the next deadline; None if there is none."""
        instants = [caller.deadline for caller in list(self._callers.values())[:1]]
        instants += [self._paused_until] if self._paused_until else []
        return max(0.0, min(instants) - time.monotonic()) if instants else None

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as exc:
            if exc.errno in _EXHAUSTED:
                self._pause(exc)
            return  # otherwise the caller has already disconnected
        if len(self._callers) >= self._max_callers:
            self._fail(next(iter(self._callers.values())), ConnectionError(f"more than {self._max_callers} at a time"))
        connection.setblocking(False)
        caller = Caller(connection, time.monotonic() + self._conversation_s)
        caller.conversation = self._converse(caller)
        self._callers[caller.descriptor] = caller
        self._selector.register(caller.descriptor, selectors.EVENT_READ, caller)
        self._advance(caller)

    def _pause(self, exc: OSError) -> None:
        """Stop accepting for a moment: a listening socket that cannot accept stays readable, so the loop would spin."""
        for caller in list(self._callers.values()):
            self._fail(caller, exc)
        self._selector.unregister(self._listener)
        self._paused_until = time.monotonic() + _PAUSE_S

    def _drop_late(self) -> None:
        now = time.monotonic()
        for caller in list(self._callers.values()):
            if caller.deadline > now:
                break
            self._fail(caller, TimeoutError(f"it took longer than {self._conversation_s:g} s"))
        if self._paused_until and self._paused_until <= now:
            self._paused_until = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _advance(self, caller: Caller) -> None:
        try:
            self._selector.modify(caller.descriptor, next(caller.conversation), caller)
        except StopIteration as end:
            self._forget(caller)
            if end.value is None:
                caller.connection.close()
            else:
                end.value()
        except Exception as exc:  # an error of one caller must not affect the others
            self._fail(caller, exc)

    def _fail(self, caller: Caller, exc: Exception) -> None:
        self._drop(caller)
        self._on_failure(exc)

    def _drop(self, caller: Caller) -> None:
        self._forget(caller)
        caller.connection.close()

    def _forget(self, caller: Caller) -> None:
        self._selector.unregister(caller.descriptor)
        del self._callers[caller.descriptor]


def receive_bytes(connection: socket.socket, max_bytes: int) -> Generator[int, None, bytes]:
    """In a conversation, receives at least one byte. Raises ConnectionError if the caller disconnected."""
    while True:
        try:
            received = connection.recv(max_bytes)
        except (BlockingIOError, ssl.SSLWantReadError):
            yield selectors.EVENT_READ
            continue
        if not received:
            raise ConnectionError("hung up")
        return received
