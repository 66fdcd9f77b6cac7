"""Threads that their process cannot do without: when one fails, the process ends, and leaves behind why.

A process that has lost the thread that serves requests, or hears the master, or writes checkpoints, would otherwise
live on and send heartbeats: nobody would replace it. Whoever watches the process finds the reason in a file (the
launcher) or in the termination message of the pod (the kubelet), even where the process cannot reach the master.

Only processes that call `end_process_on_failure` are ended: the master, workers and ps. Elsewhere a vital thread ends
as any other does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

EXIT_CODE = 1
MAX_REASON_BYTES = 2000
_TERMINATION_LOG = Path("/dev/termination-log")  # Kubernetes' own default

_log = logging.getLogger(__name__)
_reason_files: list[int] = []  # opened early: descriptors may be what the process has run out of
_before_thread: Callable[[str], None] | None = None


def end_process_on_failure(reason_file: Path, before_thread: Callable[[str], None] = lambda name: None) -> None:
    """Lets failures of vital threads end this process from now on.

    `before_thread` is called in each of them, for tests that let one fail.
    """
    global _before_thread
    _before_thread = before_thread
    sys.excepthook = _handle_uncaught
    for path in (reason_file, _TERMINATION_LOG):
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | (os.O_CREAT if path == reason_file else 0)
            _reason_files.append(os.open(path, flags, 0o600))


def _handle_uncaught(kind: type[BaseException], exc: BaseException, trace: TracebackType | None) -> None:
    """Handles an uncaught exception of the main thread."""
    write_exit_reason(f"{kind.__name__}: {exc}")
    sys.__excepthook__(kind, exc, trace)


class VitalThread(threading.Thread):
    """A daemon thread whose uncaught exception ends the process."""

    def __init__(
        self,
        target: Callable[..., object],
        *,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(target=target, name=name, args=args, kwargs=kwargs, daemon=True)

    def run(self) -> None:
        with guard_process(f"thread {self.name}"):
            if _before_thread is not None:
                _before_thread(self.name)
            super().run()


@contextlib.contextmanager
def guard_process(task: str) -> Iterator[None]:
    """Ends the process on an exception inside, as in a vital thread, for code in the threads of other libraries."""
    try:
        yield
    except Exception as exc:
        if _before_thread is None:
            raise
        end_process(task, exc)


def end_process(what: str, exc: BaseException) -> NoReturn:
    """Logs the traceback, writes the exit reason and ends the process."""
    try:
        _log.critical("%s failed; this process ends, since it cannot do without", what, exc_info=exc)
        write_exit_reason(f"{what} failed: {type(exc).__name__}: {exc}")
    finally:
        os._exit(EXIT_CODE)


def write_exit_reason(reason: str) -> None:
    """Writes the reason for which the process is about to end."""
    for descriptor in _reason_files:
        with contextlib.suppress(OSError):
            os.write(descriptor, reason.encode()[:MAX_REASON_BYTES])


def read_exit_reason(reason_file: Path) -> str:
    """Reads the exit reason of a process; "" where there is none."""
    try:
        with reason_file.open("rb") as file:
            return file.read(MAX_REASON_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
