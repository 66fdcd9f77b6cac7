"""What a launcher is to the master: it makes replicas exist and says when and how each ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

OOM = "oom"


@dataclass(frozen=True, slots=True)
class Replica:
    """Something to launch. `environ` is added to the environment of whoever submitted the job."""

    name: str  # unique in the job, also the name of its log: "worker-3"
    role: str  # "worker" or "ps"
    argv: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A living replica. `start_ticks` tells it from a later process that was given the same pid."""

    replica: str
    pid: int
    started_at: float
    start_ticks: int


@dataclass(frozen=True, slots=True)
class ExitedProcess:
    """A replica that ended: by `code`, by `signal`, or (both None) while nobody who may know was watching."""

    replica: str
    pid: int  # 0: it never ran
    code: int | None
    signal: int | None
    at: float
    cause: str = ""  # OOM: the kernel ended it for lack of memory; "": nobody said why
    peak_bytes: int = 0  # of its memory; 0: not known
    reason: str = ""  # that it left behind itself, see elasticdl.vital

    @property
    def why(self) -> str:
        if self.cause == OOM:
            return "killed by the kernel's OOM killer"
        if self.signal is not None:
            return f"killed by signal {self.signal}"
        how = "ended, exit code unknown" if self.code is None else f"exited with code {self.code}"
        return f"{how}: {self.reason}" if self.reason else how


class Launcher(Protocol):
    """Asynchronous: each call is a wish, and what came of it arrives as a started or exited event."""

    def launch(self, replica: Replica) -> None:
        """Start the replica. Launching a living one again only reports it again."""

    def signal(self, replica: str, number: int) -> None:
        """Send a signal to the replica; nothing happens if it has ended."""

    def over(self, exit_code: int, grace_s: float) -> None:
        """The job is over: whoever still lives has `grace_period_s` to end; then the launcher ends too."""
