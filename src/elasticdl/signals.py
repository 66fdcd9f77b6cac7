"""SIGTERM as a preemption notice, heard even while the main thread is deep in a step."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable


def on_terminate(leave: Callable[[str], None]) -> None:
    """Call `leave` as soon as SIGTERM arrives. From the main thread only."""
    receiving, sending = socket.socketpair()
    sending.setblocking(False)
    # Python's own handler would wait for the main thread to return from C code; the wake-up descriptor does not.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)

    def listen() -> None:
        while numbers := receiving.recv(64):
            if signal.SIGTERM in numbers:
                leave("preempted: SIGTERM")

    threading.Thread(target=listen, name="elasticdl-signals", daemon=True).start()
    _kept.append(sending)


_kept: list[socket.socket] = []  # the wake-up descriptor must stay open
