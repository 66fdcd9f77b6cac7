"""Every Python of a benchmarked pod notes when it began, when it imports what takes long, and when it hears SIGTERM.

Python imports this by itself where the directory is on PYTHONPATH: what is measured stays as it is. One line per
mark in a file of the process in $BENCH_STEPS_DIR: the monotonic clock in nanoseconds (one for the machine), a word.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

IMPORTS = {"torch": "imports torch", "elasticdl.worker.train": "imported"}
_directory = os.environ.get("BENCH_STEPS_DIR")


def note(word: str) -> None:
    if _directory:
        with open(f"{_directory}/{os.getpid()}.marks", "ab", buffering=0) as file:
            file.write(b"%d %s\n" % (time.monotonic_ns(), word.encode()))


def _on_audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "import" and (word := IMPORTS.pop(arguments[0], "")):
        note(word)


_set = signal.signal


def _noting(number: int, handler: Any) -> Any:
    if number != signal.SIGTERM or not callable(handler):
        return _set(number, handler)

    def noted(*arguments: Any) -> Any:
        note("SIGTERM")
        return handler(*arguments)

    return _set(number, noted)


if _directory:
    os.makedirs(_directory, exist_ok=True)
    note("python")
    sys.addaudithook(_on_audit)
    signal.signal = _noting  # type: ignore[assignment]
