"""Finds out whether the kernel's OOM killer ended a process, from its cgroup and the kernel log. Linux only.

A SIGKILL does not say who sent it. The OOM killer counts what it kills in the cgroup of the victim (v1 and v2), or,
where that is the root, for the whole machine; and it names the process in the kernel log. Where neither can be read,
the sender of a SIGKILL stays unknown.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_KILLED = re.compile(rb"Killed process (\d+)")
_RECORD_BYTES = 8192  # at least the longest record of the kernel log
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # the kernel log names processes by their number there


@dataclass(frozen=True, slots=True)
class KernelPaths:
    """Where the kernel shows what it knows."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    log: Path = Path("/dev/kmsg")


class OomDetector:
    """`watch` each process when it starts; `was_killed` asks once, when it was ended by SIGKILL."""

    def __init__(self, roots: KernelPaths = KernelPaths()) -> None:
        self._roots = roots
        self._known: dict[Path, int] = {}  # kills that were counted, by the file that counts them
        self._named: set[int] = set()  # processes that the kernel log names
        self._log = _open_kernel_log(roots)

    def watch(self, pid: int) -> None:
        """From here on, kills in its cgroup are news."""
        self._read_log()
        self._named.discard(pid)
        if (counter := find_kill_counter(pid, self._roots)) is not None:
            self._known[counter] = read_kill_count(counter)

    def was_killed(self, pid: int) -> bool:
        """Whether the OOM killer ended this process, as far as can be known. It must not have been waited for yet."""
        self._read_log()
        is_named = pid in self._named
        self._named.discard(pid)
        counter = find_kill_counter(pid, self._roots)
        if counter is None:
            return is_named
        has_news = read_kill_count(counter) > self._known.get(counter, 0)
        if has_news:
            self._known[counter] = self._known.get(counter, 0) + 1  # one kill explains one end
        return is_named or has_news

    def close(self) -> None:
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
                self.close()
                return
            if not record:
                return
            self._named.update(int(pid) for pid in _KILLED.findall(record))


def find_kill_counter(pid: int, roots: KernelPaths) -> Path | None:
    """The file that counts what the OOM killer ends in the cgroup of `pid`; None where none can be read."""
    try:
        lines = (roots.proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    memberships = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    counters = [
        roots.cgroup / "memory" / path.strip("/") / "memory.oom_control"
        for _, controllers, path in memberships
        if "memory" in controllers.split(",")
    ]
    counters += [
        roots.cgroup / path.strip("/") / "memory.events"
        for number, names, path in memberships
        if number == "0" and not names
    ]
    is_in_root = all(path == "/" for _, names, path in memberships if not names or "memory" in names.split(","))
    if is_in_root:  # the root of v2 counts nothing: the machine does, whose processes these then are
        counters.append(roots.proc / "vmstat")
    return next((counter for counter in counters if os.access(counter, os.R_OK)), None)


def read_kill_count(counter: Path) -> int:
    """The number behind `oom_kill` in a file of the kernel; 0 where it has none, as in old kernels."""
    with suppress(OSError):
        for line in counter.read_text().splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
    return 0


def _open_kernel_log(roots: KernelPaths) -> int | None:
    """The kernel log from here on; None where we may not read it, or it names processes in another way."""
    try:
        if os.readlink(roots.proc / "self" / "ns" / "pid") != _INITIAL_PID_NAMESPACE:
            return None
        log = os.open(roots.log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        os.lseek(log, 0, os.SEEK_END)
    return log
