"""The processes of a local job: start and replace its launcher, find living processes, end leftovers."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from elasticdl import stacks
from elasticdl.launcher.interface import RunningProcess
from elasticdl.launcher.local.master_process import MASTER_MODULE
from elasticdl.launcher.local.prepared import PREPARED_FD, spawn_launcher, take_prepared
from elasticdl.launcher.local.record import LauncherRecord
from elasticdl.launcher.local.watched_process import WatchedProcess, is_session_leader, start_ticks
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import JOB_DIRECTORY, PS, RUN, WORKER

LAUNCHER, MASTER = "launcher", "master"
_SUPERVISOR_MODULES = {"elasticdl.launcher": LAUNCHER, "elasticdl.master": MASTER}
_REPLICA_MODULES = {"elasticdl.worker": WORKER, "elasticdl.ps": PS}


def find_replicas(directory: JobDirectory, run: int | None = None) -> list[RunningProcess]:
    """The living workers and ps of the job (or of one run of it), by name."""
    return [process for process in find_processes(directory, run) if process.replica not in (LAUNCHER, MASTER)]


def find_processes(directory: JobDirectory, run: int | None = None) -> list[RunningProcess]:
    """The living processes of the job (or of one run of it), except those that replicas started themselves."""
    living = (
        {process.pid: process for process in recorded_processes(directory)}
        if run in (None, directory.run_number)
        else {}
    )
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and int(entry) not in living:
            process = _recognize_process(int(entry), os.path.realpath(directory.root), run)
            if process is not None:
                living[process.pid] = process
    return sorted(living.values(), key=lambda process: (process.replica, process.pid))


def recorded_processes(directory: JobDirectory) -> list[RunningProcess]:
    """The living processes in the launcher's record."""
    record = LauncherRecord.load(directory.launcher)
    if record is None:
        return []
    recorded = [record.launcher, *([record.master] if record.master else []), *record.replicas.values()]
    return [process for process in recorded if start_ticks(process.pid) == process.start_ticks]


def describe_processes(processes: list[RunningProcess]) -> str:
    """Text such as "worker-0 (pid 17) and worker-1 (pid 18)"."""
    *first, last = [f"{process.replica} (pid {process.pid})" for process in processes]
    return f"{', '.join(first)} and {last}" if first else last


def _recognize_process(pid: int, root: str, run: int | None) -> RunningProcess | None:
    process = Path(f"/proc/{pid}")
    try:
        argv = process.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")
        module = argv[argv.index("-m") + 1] if "-m" in argv[:-1] else ""
        if module in _SUPERVISOR_MODULES:
            name = _SUPERVISOR_MODULES[module]
            job_directory, run_number = _argument_after(argv, module), _argument_after(argv, "--run")
        elif module in _REPLICA_MODULES:
            pairs = (line.partition("=") for line in process.joinpath("environ").read_bytes().decode().split("\0"))
            environ = {key: value for key, _, value in pairs}
            variables = (_REPLICA_MODULES[module], JOB_DIRECTORY, RUN)
            name, job_directory, run_number = (environ.get(variable, "") for variable in variables)
        else:
            return None
        # A process that a replica forked has the same arguments and environment, but is no session leader.
        is_ours = bool(name and job_directory) and os.path.realpath(job_directory) == root and is_session_leader(pid)
        ticks = start_ticks(pid)
    except (OSError, UnicodeDecodeError):
        return None  # it has ended, or belongs to another user
    if not is_ours or ticks is None or (run is not None and run_number != str(run)):
        return None
    return RunningProcess(name, pid, time.time(), ticks)


def _argument_after(argv: list[str], option: str) -> str:
    return argv[argv.index(option) + 1] if option in argv[:-1] else ""


END_LEFTOVERS_TIMEOUT_S = 300.0  # how long the leftover replicas of a job may take to write a checkpoint and end
KILL_ROUNDS = 5
KILL_TIMEOUT_S = 5.0  # how long the kernel may take to end a killed process


def start_launcher(
    directory: JobDirectory,
    *,
    attached_fd: int | None,
    master: str = MASTER_MODULE,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Start the job's launcher in a session of its own, with `environ` or our environment; returns its pid.

    `attached_fd` is the reading end of a pipe whose writing end the caller keeps open for as long as it
    wants the job to run; with None the job runs by itself. The caller may close its reading end.
    """
    arguments = ["--run", str(directory.run_number), "--master", master]
    if attached_fd is not None:
        arguments += ["--attached-fd", str(PREPARED_FD)]
    return _spawn_launcher(directory, arguments, attached_fd, os.environ if environ is None else environ)


def replace_launcher(directory: JobDirectory, run: int, *, master: str = MASTER_MODULE) -> socket.socket:
    """For a master of this run whose launcher died: start a launcher that adopts the caller and all living replicas.

    Returns the socket to the new launcher, whose first report is `ReplicasReport`.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        arguments = ["--run", str(run), "--adopt", "--master-pid", str(os.getpid()), "--master-fd", str(PREPARED_FD)]
        _spawn_launcher(directory, [*arguments, "--master", master], theirs.fileno(), os.environ)
    return ours


def kill_launcher(directory: JobDirectory) -> None:
    """For a master whose launcher hangs: kill it, unless it is in a debugger, so that the next one gets the lock."""
    record = LauncherRecord.load(directory.launcher)
    if record is not None and start_ticks(record.launcher.pid) == record.launcher.start_ticks:
        if stacks.has_debugger(record.launcher.pid):
            return
        with suppress(ProcessLookupError):
            os.kill(record.launcher.pid, signal.SIGKILL)


def end_leftovers(
    directory: JobDirectory, reason: str, timeout_s: float = END_LEFTOVERS_TIMEOUT_S
) -> list[RunningProcess]:
    """End the replicas of a job that has neither launcher nor master, and return them.

    A new launcher adopts them and starts a master, which replays the journal and stops the job in the normal way: the
    workers write a checkpoint, and the job gets a result. Processes that still live then, or after `timeout_s`, are
    killed.
    """
    leftovers = find_replicas(directory)
    if not leftovers:
        return []
    if not directory.result.exists() and find_replicas(directory, directory.run_number):
        arguments = ["--run", str(directory.run_number), "--adopt", "--stop", reason]
        _wait_for_launcher(_spawn_launcher(directory, arguments, None, os.environ), timeout_s)
    kill_processes(directory)
    return leftovers


def _wait_for_launcher(pid: int, timeout_s: float) -> None:
    """Wait until our child has ended, at most `timeout_s`."""
    with suppress(ProcessLookupError, ChildProcessError):  # another thread of ours may reap it
        descriptor = os.pidfd_open(pid)
        try:
            if select.select([descriptor], [], [], timeout_s)[0]:
                os.waitpid(pid, 0)
        finally:
            os.close(descriptor)


def kill_processes(directory: JobDirectory) -> list[RunningProcess]:
    """Kill and return all living processes of the job, in an order in which none is restarted."""
    killed = dict[int, RunningProcess]()
    for _ in range(KILL_ROUNDS):
        living = find_processes(directory)
        if not living:
            break
        # A master that sees its launcher die starts another, so it is stopped first.
        for master in [process for process in living if process.replica == MASTER]:
            _signal_process(master, signal.SIGSTOP)
        # Then the launcher. It may start processes until it is dead, so search again afterwards.
        for running in sorted(living, key=lambda process: process.replica != LAUNCHER):
            _kill_process(running)
            killed[running.pid] = running
    return list(killed.values())


def _signal_process(running: RunningProcess, signal_number: int) -> None:
    if child := WatchedProcess.adopt(running):
        child.signal(signal_number)
        child.stop_watching()


def _kill_process(running: RunningProcess) -> None:
    if child := WatchedProcess.adopt(running):
        child.signal(signal.SIGKILL)
        child.wait(KILL_TIMEOUT_S)
        child.stop_watching()


def _spawn_launcher(
    directory: JobDirectory, arguments: list[str], pass_fd: int | None, environ: Mapping[str, str]
) -> int:
    argv = [sys.executable, "-P", "-m", "elasticdl.launcher", str(directory.root), *arguments]
    log = str(directory.log_file("launcher"))
    prepared = take_prepared(environ)
    if prepared is not None and prepared.start(argv, log, pass_fd):
        return prepared.pid
    return spawn_launcher(argv, environ, log, pass_fd)
