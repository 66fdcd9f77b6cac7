"""Tracks what the training thread does and for how long; heartbeats report it to the watchdog of progress.

Two durations count. `activity_s`: time since the thread began its activity or advanced in it. `blocked_s`: the newest
part of it, in which the thread's stack was the same at every heartbeat and the thread used no processor time. A thread
in a deadlock is blocked; one that runs an evaluation in a user's script is not. Durations are added up heartbeat by
heartbeat, so time in which the whole process was stopped (SIGSTOP, a suspended machine) does not count.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import NamedTuple

from elasticdl import watchdog
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.stacks import has_debugger

_MAX_INTERVAL_S = 1.0  # the most that counts between two heartbeats
_EXPLAIN_AFTER_S = 2.0  # after this time, look for a reason to pause the watchdog
# Files whose functions are on the stack only while a model is compiled.
_COMPILERS = ("/torch/_dynamo/convert_frame.py", "/torch/_inductor/compile_fx.py")
_DEBUGGERS = ("/bdb.py", "/pdb.py", "/pydevd.py", "/debugpy/")

_BUSY_CPU_SHARE = 0.05  # of a processor: a thread that uses more is not blocked

StackPosition = tuple[tuple[CodeType, int], ...]


class ActivitySample(NamedTuple):
    """The activity of the training thread at a heartbeat."""

    activity: pb.Activity.ValueType
    activity_s: float
    blocked_s: float
    pause_reason: str  # why no step is expected; "" if one is


class ActivityTracker:
    """The training thread makes it and calls `begin` and `advance`; the thread of the heartbeats calls `sample`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._now: tuple[pb.Activity.ValueType, int] = (pb.STARTING, 0)  # the activity, and the number of its change
        self._thread = threading.get_ident()
        self._seen: tuple[pb.Activity.ValueType, int] = self._now
        self._stack: StackPosition = ()
        self._cpu_s = 0.0
        self._activity_s = self._blocked_s = 0.0
        self._sampled_at = clock()

    @property
    def current(self) -> pb.Activity.ValueType:
        return self._now[0]

    def begin(self, activity: pb.Activity.ValueType) -> None:
        self._thread = threading.get_ident()
        self._now = (activity, self._now[1] + 1)

    def advance(self) -> None:
        """The activity is the same, but has advanced."""
        self.begin(self._now[0])

    def sample(self) -> ActivitySample:
        """The activity now. Call it with every heartbeat."""
        seen, now = self._now, self._clock()
        passed_s, self._sampled_at = min(now - self._sampled_at, _MAX_INTERVAL_S), now
        frame = sys._current_frames().get(self._thread)
        stack = tuple((caller.f_code, caller.f_lasti) for caller in _iterate_frames(frame))
        cpu_s = _thread_cpu_s(self._thread, frame)
        used_s, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        pause_reason = watchdog.pause_reason() or (
            _find_pause_reason(frame) if self._activity_s >= _EXPLAIN_AFTER_S else ""
        )
        if pause_reason or seen != self._seen:
            self._activity_s = self._blocked_s = 0.0
        else:
            self._activity_s += passed_s
            is_blocked = stack == self._stack and used_s <= _BUSY_CPU_SHARE * passed_s
            self._blocked_s = self._blocked_s + passed_s if is_blocked else 0.0
        self._seen, self._stack = seen, stack
        activity = seen[0]
        if activity in (pb.COMPUTING, pb.FIRST_STEP) and watchdog.is_reading_records():
            activity = pb.READING
        return ActivitySample(activity, self._activity_s, self._blocked_s, pause_reason)


def _iterate_frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _thread_cpu_s(thread: int, frame: FrameType | None) -> float:
    """The processor time of a thread that runs Python code; 0.0 if it is unknown."""
    if frame is None:  # it has ended, or has not begun
        return 0.0
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    except OSError:
        return 0.0


def _find_pause_reason(frame: FrameType | None) -> str:
    """Why no step can be expected: a compiler or a debugger runs; "" if neither does."""
    for caller in _iterate_frames(frame):
        file = caller.f_code.co_filename
        if file.endswith(_COMPILERS):
            return "compiles the model"
        if file.endswith(_DEBUGGERS[:3]) or _DEBUGGERS[3] in file:
            return "is in a debugger"
    return "is in a debugger" if has_debugger(os.getpid()) else ""
