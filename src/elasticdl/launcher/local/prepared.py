"""A launcher that starts before its job is described, so that importing torch overlaps with preparing the job.

`elasticdl train` and `run` prepare one first of all; `processes.start_launcher` uses it if it can. One that is not used
ends with the process that prepared it. This module imports little, because it runs before anything else.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

PREPARED_FD = 3
PREPARED_OPTION = "--prepared-fd"
MAX_MESSAGE_BYTES = 1 << 16
PADDING = "x" * 4096  # room in the command line for the launcher's real arguments, which overwrite it


@dataclass(frozen=True, slots=True)
class PreparedLauncher:
    """A launcher that waits for its job. It was started with `environ` in `cwd`."""

    pid: int
    connection: socket.socket
    environ: Mapping[str, str]
    cwd: str

    def start(self, argv: list[str], log: str, pass_fd: int | None) -> bool:
        """Make it run with the arguments `argv`; false if it has ended."""
        message = json.dumps({"argv": argv, "log": log}).encode()
        with self.connection, suppress(OSError):
            socket.send_fds(self.connection, [message], [] if pass_fd is None else [pass_fd])
            return True
        return False


_prepared: PreparedLauncher | None = None


def prepare_launcher() -> None:
    """Start a launcher that waits for its job. Does nothing if it cannot be started."""
    global _prepared
    with suppress(OSError):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, "-P", "-m", "elasticdl.launcher", PREPARED_OPTION, str(PREPARED_FD), PADDING]
            pid = spawn_launcher(argv, os.environ, os.devnull, theirs.fileno())
        _prepared = PreparedLauncher(pid, ours, dict(os.environ), os.getcwd())


def take_prepared(environ: Mapping[str, str]) -> PreparedLauncher | None:
    """The prepared launcher, once; None if there is none, or its environment or directory differ from ours."""
    global _prepared
    prepared, _prepared = _prepared, None
    if prepared is not None and (prepared.environ != environ or prepared.cwd != os.getcwd()):
        prepared.connection.close()
        return None
    return prepared


def spawn_launcher(argv: list[str], environ: Mapping[str, str], log: str, pass_fd: int | None) -> int:
    """Start a launcher in a session of its own, with descriptor `pass_fd` as its PREPARED_FD; returns its pid."""
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    if pass_fd is not None:
        actions.append((os.POSIX_SPAWN_DUP2, pass_fd, PREPARED_FD))
    # Not subprocess: the launcher outlives its starter, which never waits for it.
    return os.posix_spawn(
        sys.executable,
        argv,
        environ,
        file_actions=actions,
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE],
    )


def receive_job(connection: socket.socket) -> tuple[list[str], str, int | None] | None:
    """In the launcher: wait for its arguments, its log and its descriptor; None if it is not needed."""
    text, descriptors, _, _ = socket.recv_fds(connection, MAX_MESSAGE_BYTES, 1)
    if not text:
        return None
    document = json.loads(text)
    return document["argv"], document["log"], descriptors[0] if descriptors else None
