"""Detects whether the kernel's OOM killer ended a process, from its cgroup and the kernel log. Linux only.

A SIGKILL does not show who sent it. The OOM killer counts its kills in the cgroup of the victim (v1 and v2), or, if
that is the root, for the whole machine; and it names the process in the kernel log. If neither can be read, the sender
of a SIGKILL stays unknown.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_KILLED = re.compile(rb"Killed process (\d+)")
_RECORD_BYTES = 8192  # at least the longest record of the kernel log
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # the kernel log names processes by their number there


@dataclass(frozen=True, slots=True)
class KernelPaths:
    """The files of the kernel that are read, which tests replace."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    log: Path = Path("/dev/kmsg")


class OomDetector:
    """Call `watch` when a process starts, and `was_killed` once, after it was killed and before it is reaped.

    Inside `with` it also reads the kernel log, from that moment on.
    """

    def __init__(self, paths: KernelPaths = KernelPaths()) -> None:
        self._paths = paths
        self._kill_counts: dict[Path, int] = {}  # kills accounted for, by the file that counts them
        self._logged_pids: set[int] = set()  # processes that the kernel log names
        self._log: int | None = None

    def __enter__(self) -> Self:
        self._log = _open_kernel_log(self._paths)
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def watch(self, pid: int) -> None:
        """Account for all kills in the cgroup of this process so far."""
        self._read_log()
        self._logged_pids.discard(pid)
        if (counter := find_kill_counter(pid, self._paths)) is not None:
            self._kill_counts[counter] = read_kill_count(counter)

    def was_killed(self, pid: int) -> bool:
        """Whether the OOM killer ended this process, as far as can be known."""
        self._read_log()
        is_logged = pid in self._logged_pids
        self._logged_pids.discard(pid)
        counter = find_kill_counter(pid, self._paths)
        if counter is None:
            return is_logged
        is_counted = read_kill_count(counter) > self._kill_counts.get(counter, 0)
        if is_counted:
            self._kill_counts[counter] = self._kill_counts.get(counter, 0) + 1  # one kill explains one end
        return is_logged or is_counted

    def _close(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _read_log(self) -> None:
        while self._log is not None:
            try:
                record = os.read(self._log, _RECORD_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:  # the oldest records were overwritten before they were read
                continue
            except OSError:
                self._close()
                return
            if not record:
                return
            self._logged_pids.update(int(pid) for pid in _KILLED.findall(record))


def find_kill_counter(pid: int, paths: KernelPaths) -> Path | None:
    """The file that counts kills of the OOM killer in the cgroup of `pid`; None if none can be read."""
    try:
        lines = (paths.proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    memberships = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    counters = [
        paths.cgroup / "memory" / path.strip("/") / "memory.oom_control"
        for _, controllers, path in memberships
        if "memory" in controllers.split(",")
    ]
    counters += [
        paths.cgroup / path.strip("/") / "memory.events"
        for number, names, path in memberships
        if number == "0" and not names
    ]
    is_in_root = all(path == "/" for _, names, path in memberships if not names or "memory" in names.split(","))
    if is_in_root:  # the root cgroup of v2 has no counter, but the machine has
        counters.append(paths.proc / "vmstat")
    return next((counter for counter in counters if os.access(counter, os.R_OK)), None)


def read_kill_count(counter: Path) -> int:
    """The value of `oom_kill` in a file of the kernel; 0 if it has none, as in old kernels."""
    with suppress(OSError):
        for line in counter.read_text().splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
    return 0


def _open_kernel_log(paths: KernelPaths) -> int | None:
    """Open the kernel log at its end; None if we may not read it, or it numbers processes in another namespace."""
    try:
        if os.readlink(paths.proc / "self" / "ns" / "pid") != _INITIAL_PID_NAMESPACE:
            return None
        log = os.open(paths.log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        os.lseek(log, 0, os.SEEK_END)
    return log
