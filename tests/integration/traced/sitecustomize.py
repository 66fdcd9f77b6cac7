"""Writes down which files of elasticdl run code of a function, in the order of their first calls, in every process.

TRACE_DIRECTORY gets one file for each process, named by its pid, with lines of `nanoseconds kind path`. What runs while
a module is imported does not count. TRACE_FROM, `path:function:N` and others after a comma: the N-th call of such a
function begins the order of its process again. TRACE_UNTIL, `path:function` and others: the first call of one of them
after that writes a line of kind end.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType

_SOURCE = f"{Path(__file__).resolve().parents[3] / 'src' / 'elasticdl'}{os.sep}"
_DIRECTORY = os.environ.get("TRACE_DIRECTORY", "")
_BEGINNINGS = dict(entry.rsplit(":", 1) for entry in os.environ.get("TRACE_FROM", "").split(",") if entry)
_ENDS = frozenset(os.environ.get("TRACE_UNTIL", "").split(",")) - {""}
_OPTIMIZED = 0x1  # CO_OPTIMIZED: the code of a function, not of a module or a class

_ours: dict[CodeType, str] = {}  # the path in the package; "" for code of others
_reached: set[str] = set()
_calls: dict[str, int] = {}  # of functions that may begin a way
_watched = {entry.partition(":")[0] for entry in (*_BEGINNINGS, *_ENDS)}
_state = {"begun": False, "ended": False}


def _profile(frame: FrameType, event: str, argument: object) -> None:
    if event != "call":
        return
    code = frame.f_code
    path = _ours.get(code)
    if path is None:
        path = code.co_filename.removeprefix(_SOURCE) if code.co_flags & _OPTIMIZED else code.co_filename
        path = _ours[code] = "" if path == code.co_filename else path
    if path and (path not in _reached or path in _watched) and not _is_importing(frame):
        _note(path, f"{path}:{code.co_name}")


def _note(path: str, function: str) -> None:
    if function in _BEGINNINGS:
        _calls[function] = _calls.get(function, 0) + 1
        if _calls[function] == int(_BEGINNINGS[function]):
            _reached.clear()
            _state["begun"] = True
            _write("begin", path)
    if path not in _reached:
        _reached.add(path)
        _write("call", path)
    if function in _ENDS and _state["begun"] and not _state["ended"]:
        _state["ended"] = True
        _write("end", path)


def _write(kind: str, path: str) -> None:
    line = f"{time.monotonic_ns()} {kind} {path}\n"
    descriptor = os.open(f"{_DIRECTORY}/{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _forget() -> None:
    _reached.clear()
    _calls.clear()
    _state.update(begun=False, ended=False)


if _DIRECTORY:
    os.register_at_fork(after_in_child=_forget)
    threading.setprofile(_profile)
    sys.setprofile(_profile)
