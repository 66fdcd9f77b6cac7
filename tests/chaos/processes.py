"""The processes of a job, seen from outside: which live, what they use, what they leave."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elasticdl.spec.env import HOME

PAGE = os.sysconf("SC_PAGE_SIZE")
# What a process may use more at the end of a job than at its first measurement.
MAX_NEW_DESCRIPTORS = 64
MAX_NEW_BYTES = 256 << 20
SETTLE_S = 8.0  # before, it still imports
IMPORT_PROCESSOR_S = 5.0  # a worker that has used less processor time may still import its framework
HANG_UP_S = 15.0  # after which every server has closed the connections of strangers


def job_processes(home: Path) -> dict[int, str]:
    """Returns the command lines of all living processes with this ELASTICDL_HOME, by pid."""
    variable = f"{HOME}={home}".encode()
    commands = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if variable in Path(entry.path, "environ").read_bytes().split(b"\0"):
                command = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if command:  # a zombie has none
                    commands[int(entry.name)] = command
    return commands


@dataclass(frozen=True, slots=True)
class Usage:
    at: float
    descriptors: int
    bytes: int


class Leaks:
    """Compares what each process uses after its start with what it uses at the end."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], float] = {}
        self._first: dict[tuple[str, int], Usage] = {}
        self._last: dict[tuple[str, int], Usage] = {}
        self._paused_until: dict[int, float] = {}

    def pause_until(self, pid: int, until: float) -> None:
        """Do not measure a process that strangers visit, until shortly after: their connections are no leak."""
        self._paused_until[pid] = max(until + HANG_UP_S, self._paused_until.get(pid, until))

    def measure(self, living: dict[str, int], now: float) -> None:
        for process in living.items():
            name, pid = process
            if now - self._seen.setdefault(process, now) < SETTLE_S or now < self._paused_until.get(pid, now):
                continue
            with suppress(OSError):
                if name.startswith("worker") and _processor_s(pid) < IMPORT_PROCESSOR_S:
                    continue
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                usage = Usage(now, len(os.listdir(f"/proc/{pid}/fd")), pages * PAGE)
                self._first.setdefault(process, usage)
                self._last[process] = usage

    def find_leaks(self) -> list[str]:
        leaks = []
        for (name, pid), first in self._first.items():
            last = self._last[name, pid]
            if last.descriptors - first.descriptors > MAX_NEW_DESCRIPTORS or last.bytes - first.bytes > MAX_NEW_BYTES:
                leaks.append(
                    f"{name} ({pid}) grew in {last.at - first.at:.0f} s from {first.descriptors} to {last.descriptors} "
                    f"descriptors, from {first.bytes >> 20} to {last.bytes >> 20} MiB"
                )
        return leaks


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # in user mode, and in the kernel
