"""The interface of a launcher: commands from the master, and reports to it.

There are two launchers. The launcher of a local job is a process of its own, connected by a socketpair on which
commands and reports are lines of JSON (`local/wire.py`); that of a job of pods lives in the process of the master.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

OOM = "oom"


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A living replica. `start_ticks` distinguishes it from a later process with the same pid."""

    replica: str
    pid: int
    started_at: float
    start_ticks: int


@dataclass(frozen=True, slots=True)
class ExitedProcess:
    """A replica that exited with `code`, or by `signal`; both are None if neither is known."""

    replica: str
    pid: int  # 0: it never ran
    code: int | None
    signal: int | None
    ended_at: float
    cause: str = ""  # OOM: killed by the kernel's OOM killer; "": unknown
    peak_bytes: int = 0  # of its memory; 0: unknown
    reason: str = ""  # written by the process itself, see elasticdl.vital

    @property
    def description(self) -> str:
        if self.cause == OOM:
            return "killed by the kernel's OOM killer"
        if self.signal is not None:
            return f"killed by signal {self.signal}"
        status = "ended, exit code unknown" if self.code is None else f"exited with code {self.code}"
        return f"{status}: {self.reason}" if self.reason else status


# ---- commands


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """Start a replica. If it is running, it is only reported again."""

    replica: str  # unique in the job, also the name of its log: "worker-3"
    role: str  # "worker" or "ps"
    argv: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)  # added to the environment the job was submitted in
    memory_raises: int = 0  # how often the memory of its role was raised
    desired_workers: int = 0
    avoid_nodes_of: tuple[str, ...] = ()  # replicas whose nodes may be lost


@dataclass(frozen=True, slots=True)
class SignalCommand:
    """Send a signal to a replica; ignored if it has ended."""

    replica: str
    signal: int


@dataclass(frozen=True, slots=True)
class HeartbeatCommand:
    """The master's loop is alive, and sends the next heartbeat within `limit_s`; the launcher replies with its own."""

    limit_s: float


@dataclass(frozen=True, slots=True)
class EndCommand:
    """The job is over: living replicas have `grace_s` to exit; then the launcher exits, too."""

    exit_code: int
    grace_s: float | None = None  # None: timing.grace_period_s


Command = LaunchCommand | SignalCommand | HeartbeatCommand | EndCommand


# ---- reports


@dataclass(frozen=True, slots=True)
class StartedReport:
    """A replica is running."""

    replica: str
    pid: int
    started_at: float


@dataclass(frozen=True, slots=True)
class ReplicasReport:
    """All replicas that run or have exited. The first report to every master."""

    running: tuple[StartedReport, ...]
    exited: tuple[ExitedProcess, ...]


@dataclass(frozen=True, slots=True)
class DelayedReport:
    """A pod exists but does not run; reported again whenever the reason changes."""

    replica: str
    reason: str
    is_trouble: bool  # the user has to act


@dataclass(frozen=True, slots=True)
class DetachedReport:
    """The command line that the job was attached to has ended."""


@dataclass(frozen=True, slots=True)
class StopReport:
    """The job must stop, with a checkpoint."""

    reason: str


@dataclass(frozen=True, slots=True)
class HeartbeatReport:
    """The reply to a HeartbeatCommand: the launcher's loop is alive."""


Report = ReplicasReport | StartedReport | ExitedProcess | DelayedReport | DetachedReport | StopReport | HeartbeatReport


class Launcher(Protocol):
    """Commands are asynchronous: their outcome arrives as reports."""

    def execute(self, command: Command) -> None: ...

    async def flush(self) -> None:
        """Return when all commands so far have been received."""

    async def run(self) -> None:
        """Receive reports until cancelled."""
