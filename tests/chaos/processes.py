"""The processes of a job, seen from outside: who lives, what each holds, what is left of them."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elasticdl.spec.env import HOME

PAGE = os.sysconf("SC_PAGE_SIZE")
# What a process that lives through all of a job may take more at its end than at its first measurement.
GROWN_DESCRIPTORS = 64
GROWN_BYTES = 256 << 20
SETTLED_S = 8.0  # before this it still imports
IMPORTED_S = (
    5.0  # of processor time; a worker that has had less may still import its framework, however long it is there
)
GREETED_S = 15.0  # after which every door has hung up on strangers


def of_home(home: Path) -> dict[int, str]:
    """All living processes with this ELASTICDL_HOME: command lines by pid."""
    wanted = f"{HOME}={home}".encode()
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if wanted in Path(entry.path, "environ").read_bytes().split(b"\0"):
                command = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if command:  # a zombie has none
                    found[int(entry.name)] = command
    return found


@dataclass(frozen=True, slots=True)
class Held:
    at: float
    descriptors: int
    bytes: int


class Leaks:
    """What each process holds, from when it has settled to when it was last seen."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], float] = {}
        self._first: dict[tuple[str, int], Held] = {}
        self._last: dict[tuple[str, int], Held] = {}
        self._besieged: dict[int, float] = {}

    def besiege(self, pid: int, until: float) -> None:
        """Strangers come to it until then: what they cost meanwhile, and shortly after, is no leak."""
        self._besieged[pid] = max(until + GREETED_S, self._besieged.get(pid, until))

    def measure(self, living: dict[str, int], now: float) -> None:
        for who in living.items():
            if now - self._seen.setdefault(who, now) < SETTLED_S or now < self._besieged.get(who[1], now):
                continue
            with suppress(OSError):
                if who[0].startswith("worker") and _processor_s(who[1]) < IMPORTED_S:
                    continue
                pages = int(Path(f"/proc/{who[1]}/statm").read_text().split()[1])
                held = Held(now, len(os.listdir(f"/proc/{who[1]}/fd")), pages * PAGE)
                self._first.setdefault(who, held)
                self._last[who] = held

    def found(self) -> list[str]:
        told = []
        for (name, pid), first in self._first.items():
            last = self._last[name, pid]
            if last.descriptors - first.descriptors > GROWN_DESCRIPTORS or last.bytes - first.bytes > GROWN_BYTES:
                told.append(
                    f"{name} ({pid}) grew in {last.at - first.at:.0f} s from {first.descriptors} to {last.descriptors} "
                    f"descriptors, from {first.bytes >> 20} to {last.bytes >> 20} MiB"
                )
        return told


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # in user mode, and in the kernel
