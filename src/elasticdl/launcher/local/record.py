"""`launcher.json`: the processes that a launcher started, so that the next launcher can take over."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from elasticdl.errors import StateDamaged
from elasticdl.launcher.interface import ExitedProcess, RunningProcess
from elasticdl.launcher.local.watched_process import start_ticks
from elasticdl.spec.directory import JobDirectory, read_json, write_json

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class LauncherRecord:
    launcher: RunningProcess
    master: RunningProcess | None = None
    attached: RunningProcess | None = None  # the command line that the job is attached to; its end stops the job
    is_detached: bool = False  # that command line has ended
    replicas: dict[str, RunningProcess] = field(default_factory=dict)
    exited: list[ExitedProcess] = field(default_factory=list)

    def save(self, path: Path) -> None:
        document = {
            "pid": self.launcher.pid,
            "launcher": asdict(self.launcher),
            "master": asdict(self.master) if self.master else None,
            "attached": asdict(self.attached) if self.attached else None,
            "detached": self.is_detached,
            "replicas": [asdict(replica) for replica in self.replicas.values()],
            "exited": [asdict(exited) for exited in self.exited],
        }
        write_json(path, document)

    @classmethod
    def load(cls, path: Path) -> LauncherRecord | None:
        """The record at `path`; None if there is none or it is damaged, and /proc has to be searched."""
        try:
            document = read_json(path)
        except StateDamaged as exc:
            _log.error("%s; searching for processes in /proc", exc)
            return None
        if document is None:
            return None
        return cls(
            launcher=RunningProcess(**document["launcher"]),
            master=_optional_process(document["master"]),
            attached=_optional_process(document["attached"]),
            is_detached=document["detached"],
            replicas={replica["replica"]: RunningProcess(**replica) for replica in document["replicas"]},
            exited=[ExitedProcess(**exited) for exited in document["exited"]],
        )


def _optional_process(document: dict[str, Any] | None) -> RunningProcess | None:
    return RunningProcess(**document) if document else None


def is_running(directory: JobDirectory) -> bool:
    """Whether the job has a living launcher or master."""
    record = LauncherRecord.load(directory.launcher)
    if record is None:
        return directory.launcher.exists() and is_locked(directory)
    supervisors = (record.launcher, record.master)
    return any(process is not None and start_ticks(process.pid) == process.start_ticks for process in supervisors)


def is_locked(directory: JobDirectory) -> bool:
    """Whether a launcher runs, or the job is being resumed."""
    try:
        with lock_job(directory, wait=False):
            return False
    except BlockingIOError:
        return True


@contextmanager
def lock_job(directory: JobDirectory, *, wait: bool) -> Iterator[None]:
    """Lock the job for launching or resuming it. If it is locked, wait for it, or raise BlockingIOError.

    Two launchers would start everything twice. The kernel frees the lock of a dead process.
    """
    descriptor = os.open(directory.root, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)
