"""Stacks of all threads, written into the log of a process by faulthandler, which needs no living main thread."""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import sys
from pathlib import Path

DUMP_SIGNAL = signal.SIGQUIT  # as of a JVM; SIGUSR1 and SIGUSR2 are taken by batch systems and frameworks


def dump_on_signal() -> None:
    """Makes SIGQUIT write the stacks of all threads to standard error; the process continues."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # no such signal, or no standard error
        faulthandler.register(DUMP_SIGNAL, all_threads=True)


def dump_stacks(reason: str) -> None:
    """Writes the stacks of all threads to standard error now."""
    sys.stderr.write(f"stacks of all threads: {reason}\n")
    sys.stderr.flush()
    faulthandler.dump_traceback(all_threads=True)


def has_debugger(pid: int) -> bool:
    """Whether a debugger is attached to the process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    return any(line.startswith("TracerPid:") and line.split()[1] != "0" for line in lines)
