"""Jobs as processes of this machine: start a launcher, replace a dead one, end what is left, kill everything."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from elasticdl import stacks
from elasticdl.launcher import living
from elasticdl.launcher.child import Child
from elasticdl.launcher.interface import Running
from elasticdl.launcher.link import MASTER
from elasticdl.launcher.record import Record, start_ticks
from elasticdl.spec.directory import JobDirectory

PASSED_FD = 3
END_S = 300.0  # how long what is left of a job may take to write a checkpoint and end
KILL_ROUNDS = 5
KILL_S = 5.0  # how long the kernel may take to end a killed process


def start(
    directory: JobDirectory,
    *,
    attached_fd: int | None,
    master: str = MASTER,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Start the job's launcher in a session of its own, with our environment or another; its pid.

    `attached_fd` is the reading end of a pipe whose writing end the caller keeps open for as long as it
    wants the job to run; None lets the job run on by itself. The caller may close its reading end.
    """
    arguments = ["--run", str(directory.run), "--master", master]
    if attached_fd is not None:
        arguments += ["--attached-fd", str(PASSED_FD)]
    return _spawn(directory, arguments, attached_fd, os.environ if environ is None else environ)


def adopt(directory: JobDirectory, run: int, *, master: str = MASTER) -> socket.socket:
    """For a master of this run whose launcher died: a new launcher that adopts all living replicas and the caller.

    The socket speaks as the inherited one did, beginning with a `replicas` event.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        arguments = ["--run", str(run), "--adopt", "--master-pid", str(os.getpid()), "--master-fd", str(PASSED_FD)]
        _spawn(directory, [*arguments, "--master", master], theirs.fileno(), os.environ)
    return ours


def kill_launcher(directory: JobDirectory) -> None:
    """For a master whose launcher hangs: the next one finds the lock of the directory free. Not under a debugger."""
    record = Record.load(directory.launcher)
    if record is not None and start_ticks(record.launcher.pid) == record.launcher.start_ticks:
        if stacks.is_traced(record.launcher.pid):
            return
        with suppress(ProcessLookupError):
            os.kill(record.launcher.pid, signal.SIGKILL)


def end_leftovers(directory: JobDirectory, reason: str, timeout_s: float = END_S) -> list[Running]:
    """End the replicas of a job that has neither launcher nor master; those that were found.

    A launcher adopts them and starts a master, which replays the journal and stops the job as it always does: what
    the workers hold is in a checkpoint afterwards, and the job has a result. What still lives then, or after
    `timeout_s`, is killed.
    """
    found = living.find_replicas(directory)
    if not found:
        return []
    if not directory.result.exists() and living.find_replicas(directory, directory.run):
        arguments = ["--run", str(directory.run), "--adopt", "--stop", reason]
        _await_end(_spawn(directory, arguments, None, os.environ), timeout_s)
    kill_all(directory)
    return found


def _await_end(pid: int, timeout_s: float) -> None:
    """Until our child has ended, at most `timeout_s`."""
    with suppress(ProcessLookupError, ChildProcessError):  # another thread waits for all that end
        descriptor = os.pidfd_open(pid)
        try:
            if select.select([descriptor], [], [], timeout_s)[0]:
                os.waitpid(pid, 0)
        finally:
            os.close(descriptor)


def kill_all(directory: JobDirectory) -> list[Running]:
    """SIGKILL every process of the job that still lives, in an order in which nothing comes back; who was killed."""
    killed = dict[int, Running]()
    for _ in range(KILL_ROUNDS):
        found = living.find_all(directory)
        if not found:
            break
        # A master that sees its launcher die starts another: it must not get to see it.
        for master in [one for one in found if one.replica == living.MASTER]:
            _signal(master, signal.SIGSTOP)
        # Then the launcher. It may have started something until the very last moment, so look again.
        for running in sorted(found, key=lambda one: one.replica != living.LAUNCHER):
            _kill(running)
            killed[running.pid] = running
    return list(killed.values())


def _signal(running: Running, number: int) -> None:
    if child := Child.adopt(running):
        child.signal(number)
        child.forget()


def _kill(running: Running) -> None:
    if child := Child.adopt(running):
        child.signal(signal.SIGKILL)
        child.await_end(KILL_S)
        child.forget()


def _spawn(directory: JobDirectory, arguments: list[str], passed: int | None, environ: Mapping[str, str]) -> int:
    argv = [sys.executable, "-P", "-m", "elasticdl.launcher", str(directory.root), *arguments]
    log = str(directory.log("launcher"))
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    if passed is not None:
        actions.append((os.POSIX_SPAWN_DUP2, passed, PASSED_FD))
    # Not subprocess: nobody here will wait for it, it is meant to outlive its starter.
    return os.posix_spawn(
        sys.executable,
        argv,
        environ,
        file_actions=actions,
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE],
    )
