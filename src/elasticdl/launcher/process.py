"""Jobs as processes of this machine: start a launcher, replace a dead one, kill everything."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

from elasticdl.launcher.child import Child
from elasticdl.launcher.interface import Running
from elasticdl.launcher.link import MASTER
from elasticdl.launcher.record import Record
from elasticdl.spec.directory import JobDirectory

PASSED_FD = 3
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
    arguments = [] if attached_fd is None else ["--attached-fd", str(PASSED_FD)]
    return _spawn(directory, [*arguments, "--master", master], attached_fd, os.environ if environ is None else environ)


def adopt(directory: JobDirectory, *, master: str = MASTER) -> socket.socket:
    """For a master whose launcher died: a new launcher that adopts all living replicas and the caller.

    The socket speaks as the inherited one did, beginning with a `replicas` event.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        master_pid = ["--master-pid", str(os.getpid())]
        _spawn(
            directory,
            ["--adopt", *master_pid, "--master-fd", str(PASSED_FD), "--master", master],
            theirs.fileno(),
            os.environ,
        )
    return ours


def kill_all(directory: JobDirectory) -> None:
    """SIGKILL every process of the job that still lives, in an order in which nothing comes back."""
    if (record := Record.load(directory.launcher)) is None:
        return
    # A master that sees its launcher die starts another: it must not get to see it.
    if record.master and (master := Child.adopt(record.master)):
        master.signal(signal.SIGSTOP)
        master.forget()
    _kill(record.launcher)
    # Read again: it may have started something until the very last moment.
    record = Record.load(directory.launcher) or record
    for running in [record.master, *record.replicas.values()]:
        if running:
            _kill(running)


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
