"""Every Python of a benchmarked pod records when it starts, when it imports torch, and when it receives SIGTERM.

Python imports this module by itself if the directory is on PYTHONPATH, so the measured programs stay unchanged. Each
mark is a line in a file of the process in $BENCH_STEPS_DIR: the machine's monotonic clock in nanoseconds, and a word.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

MARK_BY_IMPORT = {"torch": "imports torch", "elasticdl.worker.train": "imported"}
_directory = os.environ.get("BENCH_STEPS_DIR")


def write_mark(mark: str) -> None:
    if _directory:
        with open(f"{_directory}/{os.getpid()}.marks", "ab", buffering=0) as file:
            file.write(b"%d %s\n" % (time.monotonic_ns(), mark.encode()))


def _on_audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "import" and (mark := MARK_BY_IMPORT.pop(arguments[0], "")):
        write_mark(mark)


_set_handler = signal.signal


def _set_marking_handler(number: int, handler: Any) -> Any:
    if number != signal.SIGTERM or not callable(handler):
        return _set_handler(number, handler)

    def mark_and_handle(*arguments: Any) -> Any:
        write_mark("SIGTERM")
        return handler(*arguments)

    return _set_handler(number, mark_and_handle)


if _directory:
    os.makedirs(_directory, exist_ok=True)
    write_mark("python")
    sys.addaudithook(_on_audit)
    signal.signal = _set_marking_handler  # type: ignore[assignment]
