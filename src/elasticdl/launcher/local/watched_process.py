"""A watched process: its pidfd becomes readable when it ends, without polling and without pid reuse."""

from __future__ import annotations

import os
import resource  # noqa: F401  # os.wait4 imports it at its first call, when there may be no descriptor left
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from elasticdl.launcher.interface import OOM, ExitedProcess, RunningProcess
from elasticdl.launcher.local.record import start_ticks

# Who a process is must never be inherited: neither from another job nor from a torchrun we may run under.
IDENTITY_VARIABLES = frozenset(
    {
        "ELASTICDL_JOB_DIRECTORY",
        "ELASTICDL_WORKER",
        "ELASTICDL_PS",
        "ELASTICDL_ADDRESS",
        "ELASTICDL_RUN",
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
    }
)


def inherited_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The person's environment without the names that say who a process is."""
    return {name: value for name, value in environ.items() if name not in IDENTITY_VARIABLES}


class WatchedProcess:
    """A process this launcher started, or adopted from the launcher before it."""

    def __init__(self, running: RunningProcess, pidfd: int, process: subprocess.Popen[bytes] | None) -> None:
        self.running = running
        self._pidfd = pidfd
        self._process = process  # None: adopted, hence not ours to wait for

    @classmethod
    def spawn(
        cls,
        name: str,
        argv: Sequence[str],
        *,
        environ: Mapping[str, str],
        log: Path,
        now: float,
        pass_fds: Sequence[int] = (),
    ) -> WatchedProcess:
        """Start `argv` in a session of its own, its output appended to `log`. OSError if that cannot be."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                list(argv),
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=tuple(pass_fds),
                start_new_session=True,
            )
        # Not yet waited for, so pid and start time are its own even if it has already ended.
        try:
            ticks = start_ticks(process.pid) or 0
            return cls(RunningProcess(name, process.pid, now, ticks), os.pidfd_open(process.pid), process)
        except OSError:
            # No descriptor is left: nobody would ever hear of its end.
            process.kill()
            process.wait()
            raise

    @classmethod
    def adopt(cls, running: RunningProcess) -> WatchedProcess | None:
        """Watch a process someone else started; None if it has ended."""
        try:
            pidfd = os.pidfd_open(running.pid)
        except ProcessLookupError:
            return None
        if start_ticks(running.pid) != running.start_ticks:
            os.close(pidfd)
            return None
        return cls(running, pidfd, None)

    def fileno(self) -> int:
        return self._pidfd

    def signal(self, number: int) -> None:
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            return
        if number == signal.SIGKILL:
            self._kill_group()

    def wait(self, timeout_s: float) -> None:
        """Return when it has ended, or after `timeout_s`."""
        select.select([self._pidfd], [], [], timeout_s)

    def stop_watching(self) -> None:
        """Stop watching it, whether it lives or not."""
        os.close(self._pidfd)

    def reap(self, now: float, *, out_of_memory: bool = False) -> ExitedProcess:
        """How it ended. To be called once, when the pidfd is readable. `out_of_memory`: the kernel says so."""
        # A replica is its process group, as a pod is: whatever it started ends with it.
        self._kill_group()
        code, peak_bytes = self._wait()
        os.close(self._pidfd)
        number = -code if code is not None and code < 0 else None
        is_killed = number == signal.SIGKILL or code is None
        return ExitedProcess(
            self.running.replica,
            self.running.pid,
            code if number is None else None,
            number,
            now,
            OOM if out_of_memory and is_killed else "",
            peak_bytes,
        )

    def _wait(self) -> tuple[int | None, int]:
        """Its exit code, and the most memory that it or one of its children had."""
        if self._process is None:
            return None, 0
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode, usage.ru_maxrss * 1024

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.running.pid, signal.SIGKILL)
