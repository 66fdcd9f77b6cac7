"""Memory and processor time of what runs in pods on this machine: their processes are processes of its kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    pid: int
    resident_bytes: int
    cpu_s: float


def running(*words: str) -> list[Usage]:
    """All processes in pods whose arguments have these in a row, as in ("-m", "elasticdl.launcher.kubernetes.pod")."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if not any(tuple(arguments[n : n + len(words)]) == words for n in range(len(arguments))):
                continue
            if "kubepods" not in (place / "cgroup").read_text():  # of a job on this machine, without pods
                continue
            found.append(_usage(place))
        except OSError:  # it ended meanwhile
            continue
    return found


def _usage(place: Path) -> Usage:
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    pages = int((place / "statm").read_text().split()[1])
    return Usage(int(place.name), pages * _PAGE, (int(fields[11]) + int(fields[12])) * _TICK_S)
