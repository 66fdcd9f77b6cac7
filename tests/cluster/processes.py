"""Memory and processor time of processes in pods on this machine, which are processes of its kernel."""

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
    """All processes in pods with these consecutive arguments, like ("-m", "elasticdl.launcher.kubernetes.pod")."""
    usages = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if not any(tuple(arguments[n : n + len(words)]) == words for n in range(len(arguments))):
                continue
            if "kubepods" not in (directory / "cgroup").read_text():  # of a local job
                continue
            usages.append(_usage(directory))
        except OSError:  # the process has just ended
            continue
    return usages


def _usage(directory: Path) -> Usage:
    fields = (directory / "stat").read_text().rpartition(")")[2].split()
    pages = int((directory / "statm").read_text().split()[1])
    return Usage(int(directory.name), pages * _PAGE, (int(fields[11]) + int(fields[12])) * _TICK_S)
