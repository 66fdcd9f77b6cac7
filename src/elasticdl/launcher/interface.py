"""The interface of a launcher: the commands that a master gives it, and the reports that it gives the master.

There are two launchers. The one of a local job is a process of its own behind a socketpair, on which commands and
reports are lines of JSON (`local/wire.py`); the one of a job of pods lives in the process of the master.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

OOM = "oom"


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


# ---- commands


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """Start a replica. Launching a living one again only reports it again."""

    replica: str  # unique in the job, also the name of its log: "worker-3"
    role: str  # "worker" or "ps"
    argv: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)  # added to that of whoever submitted the job
    memory_raises: int = 0  # how often the memory of its role was raised
    desired_workers: int = 0  # how many workers there should be
    avoid_nodes_of: tuple[str, ...] = ()  # replicas whose node may be lost


@dataclass(frozen=True, slots=True)
class SignalCommand:
    """Send a signal to a replica; nothing happens if it has ended."""

    replica: str
    signal: int


@dataclass(frozen=True, slots=True)
class HeartbeatCommand:
    """The loop of the master turns, and will say so again within `limit_s`; the launcher answers with its own."""

    limit_s: float


@dataclass(frozen=True, slots=True)
class EndCommand:
    """The job is over: replicas that still live have `grace_s` to end; then the launcher ends, too."""

    exit_code: int
    grace_s: float | None = None  # None: timing.grace_period_s


Command = LaunchCommand | SignalCommand | HeartbeatCommand | EndCommand


# ---- reports


@dataclass(frozen=True, slots=True)
class StartedReport:
    """A replica runs."""

    replica: str
    pid: int
    at: float


@dataclass(frozen=True, slots=True)
class ReplicasReport:
    """All replicas there are, and how those ended that did: the first report that every master gets."""

    running: tuple[StartedReport, ...]
    exited: tuple[ExitedProcess, ...]


@dataclass(frozen=True, slots=True)
class DelayedReport:
    """A pod exists but does not run; reported again whenever the reason changes."""

    replica: str
    reason: str
    is_trouble: bool  # it will not end by itself


@dataclass(frozen=True, slots=True)
class DetachedReport:
    """The command line that the job was attached to is gone."""


@dataclass(frozen=True, slots=True)
class StopReport:
    """The job is to stop, with a checkpoint."""

    reason: str


@dataclass(frozen=True, slots=True)
class HeartbeatReport:
    """The answer to a HeartbeatCommand: the loop of the launcher turns."""


Report = ReplicasReport | StartedReport | ExitedProcess | DelayedReport | DetachedReport | StopReport | HeartbeatReport


class Launcher(Protocol):
    """Commands are asynchronous: what came of each arrives as a report."""

    def execute(self, command: Command) -> None: ...

    async def flush(self) -> None:
        """Return when all commands so far have been taken."""

    async def run(self) -> None:
        """Take reports until cancelled."""
