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


class WatchedProcess:
    """A process that this launcher started, or adopted from the previous launcher."""

    def __init__(
        self, running: RunningProcess, pidfd: int, process: subprocess.Popen[bytes] | None, *, is_child: bool
    ) -> None:
        self.running = running
        self._pidfd = pidfd
        self._process = process  # None: it was started by another process
        self._is_child = is_child  # otherwise its exit code cannot be read

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
        """Start `argv` in a session of its own and append its output to `log`. Raises OSError if it cannot."""
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
        # Until it is reaped its pid is not reused, so its start time is right even if it has already ended.
        try:
            ticks = start_ticks(process.pid) or 0
            return cls(
                RunningProcess(name, process.pid, now, ticks), os.pidfd_open(process.pid), process, is_child=True
            )
        except OSError:
            # No descriptor is left, so its end would not be noticed.
            process.kill()
            process.wait()
            raise

    @classmethod
    def watch_child(cls, name: str, pid: int, now: float) -> WatchedProcess:
        """Watch a child that was forked for us. Raises OSError if it cannot be watched."""
        return cls(RunningProcess(name, pid, now, start_ticks(pid) or 0), os.pidfd_open(pid), None, is_child=True)

    @classmethod
    def adopt(cls, running: RunningProcess) -> WatchedProcess | None:
        """Watch a process that another process started; None if it has ended."""
        try:
            pidfd = os.pidfd_open(running.pid)
        except ProcessLookupError:
            return None
        if start_ticks(running.pid) != running.start_ticks:
            os.close(pidfd)
            return None
        return cls(running, pidfd, None, is_child=False)

    def fileno(self) -> int:
        return self._pidfd

    def signal(self, signal_number: int) -> None:
        try:
            signal.pidfd_send_signal(self._pidfd, signal_number)
        except ProcessLookupError:
            return
        if signal_number == signal.SIGKILL:
            self._kill_group()

    def wait(self, timeout_s: float) -> None:
        """Return when the process has ended, or after `timeout_s`."""
        select.select([self._pidfd], [], [], timeout_s)

    def stop_watching(self) -> None:
        """Close the pidfd."""
        os.close(self._pidfd)

    def reap(self, now: float, *, out_of_memory: bool = False) -> ExitedProcess:
        """Reap the process, once, when its pidfd is readable; returns how it exited.

        `out_of_memory`: the kernel reports that its OOM killer ended it.
        """
        # A replica is its process group, as a pod is: all processes that it started end with it.
        self._kill_group()
        code, peak_bytes = self._wait()
        os.close(self._pidfd)
        signal_number = -code if code is not None and code < 0 else None
        is_killed = signal_number == signal.SIGKILL or code is None
        return ExitedProcess(
            self.running.replica,
            self.running.pid,
            code if signal_number is None else None,
            signal_number,
            now,
            OOM if out_of_memory and is_killed else "",
            peak_bytes,
        )

    def _wait(self) -> tuple[int | None, int]:
        """Its exit code, and the peak memory of the process or one of its children."""
        if not self._is_child:
            return None, 0
        _, status, usage = os.wait4(self.running.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if self._process is not None:
            self._process.returncode = code
        return code, usage.ru_maxrss * 1024

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.running.pid, signal.SIGKILL)


def start_ticks(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot; None if there is no such living process."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def is_session_leader(pid: int) -> bool:
    fields = _stat_fields(pid)
    return bool(fields) and int(fields[3]) == pid


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none if there is no such living process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The second field is the command in brackets and may hold anything, brackets and spaces too.
    fields = stat.rpartition(")")[2].split()
    return [] if fields[0] in "ZX" else fields
