"""SIGTERM as a preemption notice: a process exits at once, or is notified even while its main thread is busy."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

from elasticdl.vital import VitalThread


def exit_on_sigterm() -> None:
    """Makes the process exit at once on SIGTERM, because it has no state to save (yet).

    By default process 1 of a container ignores SIGTERM: without this, a pod that is preempted while it starts would
    occupy its resources for the whole grace period.
    """
    signal.signal(signal.SIGTERM, lambda *_: exit_as_terminated())


def exit_as_terminated() -> NoReturn:
    """Exits as if killed by SIGTERM (status 128 + 15)."""
    os._exit(128 + signal.SIGTERM)


def die_with_parent() -> None:
    """Makes the kernel kill this process as soon as the thread that started it ends. Linux only."""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
    if ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def notify_on_sigterm(leave: Callable[[str], None]) -> None:
    """Calls `leave` as soon as SIGTERM arrives. Call this from the main thread only.

    Processes that are forked from this one, such as those of a `multiprocessing.Pool`, end on SIGTERM as usual.
    """
    receiving, sending = socket.socketpair()
    sending.setblocking(False)
    # Python's own handler would wait for the main thread to return from C code; the wake-up descriptor does not.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)

    def listen() -> None:
        while numbers := receiving.recv(64):
            if signal.SIGTERM in numbers:
                leave("preempted: SIGTERM")

    VitalThread(listen, name="elasticdl-signals").start()
    _open_sockets.append(sending)
    os.register_at_fork(after_in_child=_reset_after_fork)


def _reset_after_fork() -> None:
    """Resets the handler in a forked process, whose SIGTERM would otherwise wake its parent."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


_open_sockets: list[socket.socket] = []  # the wake-up descriptor must stay open
