"""Threads without which their process cannot work: when one fails, the process writes the reason and exits.

Otherwise a process without the thread that serves requests, listens to the master or writes checkpoints would continue
to send heartbeats, and would not be replaced. The launcher finds the reason in a file, the kubelet in the pod's
termination message, even if the process cannot reach the master.

This ends only processes that call `end_process_on_failure`: the master, workers and ps. In others a vital thread ends
like any thread.
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
_reason_files: list[int] = []  # opened early, because the process may run out of descriptors
_before_thread: Callable[[str], None] | None = None


def end_process_on_failure(reason_file: Path, before_thread: Callable[[str], None] = lambda name: None) -> None:
    """Makes failures of vital threads end this process from now on.

    `before_thread` is called at the start of each, so that tests can make one fail.
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


def end_process(task: str, exc: BaseException) -> NoReturn:
    """Logs the traceback, writes the exit reason and ends the process."""
    try:
        _log.critical("%s failed; this process exits, because it cannot work without it", task, exc_info=exc)
        write_exit_reason(f"{task} failed: {type(exc).__name__}: {exc}")
    finally:
        os._exit(EXIT_CODE)


def write_exit_reason(reason: str) -> None:
    """Writes the reason why the process is about to exit."""
    for descriptor in _reason_files:
        with contextlib.suppress(OSError):
            os.write(descriptor, reason.encode()[:MAX_REASON_BYTES])


def read_exit_reason(reason_file: Path) -> str:
    """Reads the exit reason of a process; "" if there is none."""
    try:
        with reason_file.open("rb") as file:
            return file.read(MAX_REASON_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
