"""`launcher.json`: what this launcher started, so that another can take over from it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from elasticdl.launcher.interface import Exited, Running
from elasticdl.spec.directory import JobDirectory, read_json, write_private


@dataclass(slots=True)
class Record:
    launcher: Running
    master: Running | None = None
    attached: Running | None = None  # the command line that watches the job; its end stops the job
    detached: bool = False  # it has ended
    replicas: dict[str, Running] = field(default_factory=dict)
    exited: list[Exited] = field(default_factory=list)

    def save(self, path: Path) -> None:
        document = {
            "pid": self.launcher.pid,
            "launcher": asdict(self.launcher),
            "master": asdict(self.master) if self.master else None,
            "attached": asdict(self.attached) if self.attached else None,
            "detached": self.detached,
            "replicas": [asdict(one) for one in self.replicas.values()],
            "exited": [asdict(one) for one in self.exited],
        }
        write_private(path, json.dumps(document, indent=1))

    @classmethod
    def load(cls, path: Path) -> Record | None:
        """The record at `path`; None if no launcher ever wrote one."""
        document = read_json(path)
        if document is None:
            return None
        return cls(
            launcher=Running(**document["launcher"]),
            master=_optional(document["master"]),
            attached=_optional(document["attached"]),
            detached=document["detached"],
            replicas={one["replica"]: Running(**one) for one in document["replicas"]},
            exited=[Exited(**one) for one in document["exited"]],
        )


def _optional(document: dict[str, Any] | None) -> Running | None:
    return Running(**document) if document else None


def is_kept(directory: JobDirectory) -> bool:
    """Whether a launcher or a master keeps the job going."""
    record = Record.load(directory.launcher)
    if record is None:
        return False
    return any(one is not None and start_ticks(one.pid) == one.start_ticks for one in (record.launcher, record.master))


def start_ticks(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot; None if there is no such living process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command in brackets and may hold anything, brackets and spaces too.
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], fields[19]
    return None if state in "ZX" else int(started)
