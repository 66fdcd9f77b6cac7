"""The processes of a job that live: those a launcher wrote down, and those it had no time to.

A launcher that is killed between starting a process and writing it down leaves one that only `/proc` knows. It is
recognised by what the launcher gave it: its module, its session, and the job directory in its arguments or environment.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from elasticdl.launcher.interface import Running
from elasticdl.launcher.record import Record, is_session_leader, start_ticks
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import JOB_DIRECTORY, PS, RUN, WORKER

LAUNCHER, MASTER = "launcher", "master"
_KEEPERS = {"elasticdl.launcher": LAUNCHER, "elasticdl.master": MASTER}
_REPLICAS = {"elasticdl.worker": WORKER, "elasticdl.ps": PS}


def find_replicas(directory: JobDirectory, run: int | None = None) -> list[Running]:
    """Every worker and ps of the job that lives, by name; of one run only where that is given."""
    return [one for one in find_all(directory, run) if one.replica not in (LAUNCHER, MASTER)]


def find_keepers(directory: JobDirectory) -> list[Running]:
    """The launcher and the master that keep the job going."""
    return [one for one in find_all(directory) if one.replica in (LAUNCHER, MASTER)]


def find_all(directory: JobDirectory, run: int | None = None) -> list[Running]:
    """Every process of the job that lives, but those that its replicas started themselves."""
    found = {one.pid: one for one in recorded(directory)} if run in (None, directory.run) else {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and int(entry) not in found:
            one = _recognize(int(entry), os.path.realpath(directory.root), run)
            if one is not None:
                found[one.pid] = one
    return sorted(found.values(), key=lambda one: (one.replica, one.pid))


def recorded(directory: JobDirectory) -> list[Running]:
    """Those of them that the launcher wrote down."""
    record = Record.load(directory.launcher)
    if record is None:
        return []
    known = [record.launcher, *([record.master] if record.master else []), *record.replicas.values()]
    return [one for one in known if start_ticks(one.pid) == one.start_ticks]


def sentence(processes: list[Running]) -> str:
    """worker-0 (pid 17) and worker-1 (pid 18)"""
    *others, last = [f"{one.replica} (pid {one.pid})" for one in processes]
    return f"{', '.join(others)} and {last}" if others else last


def _recognize(pid: int, root: str, run: int | None) -> Running | None:
    process = Path(f"/proc/{pid}")
    try:
        argv = process.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")
        module = argv[argv.index("-m") + 1] if "-m" in argv[:-1] else ""
        if module in _KEEPERS:
            name, where, number = _KEEPERS[module], _argument(argv, module), _argument(argv, "--run")
        elif module in _REPLICAS:
            pairs = (line.partition("=") for line in process.joinpath("environ").read_bytes().decode().split("\0"))
            environ = {key: value for key, _, value in pairs}
            name, where, number = (environ.get(key, "") for key in (_REPLICAS[module], JOB_DIRECTORY, RUN))
        else:
            return None
        # What a replica forks has its arguments and its environment, but not a session of its own.
        is_it = bool(name and where) and os.path.realpath(where) == root and is_session_leader(pid)
        ticks = start_ticks(pid)
    except (OSError, UnicodeDecodeError):
        return None  # it has ended, or is not ours to look at
    if not is_it or ticks is None or (run is not None and number != str(run)):
        return None
    return Running(name, pid, time.time(), ticks)


def _argument(argv: list[str], after: str) -> str:
    return argv[argv.index(after) + 1] if after in argv[:-1] else ""
