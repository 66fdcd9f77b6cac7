"""The launcher's side of the fork server: starts the server and requests replicas from it."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from elasticdl.launcher.local.fork_server import FORKED, GO, MAX_REPLY_BYTES, PADDING_VARIABLE, READY, ForkRequest
from elasticdl.launcher.local.watched_process import WatchedProcess
from elasticdl.launcher.replica_environ import allocator_environ, inherited_environ, instruction_set_environ

SERVER_MODULE = "elasticdl.launcher.local.fork_server"
# What a worker imports before its first step; torch's optimizers import torch._dynamo in their first step.
PRELOADED_MODULES = (
    "torch",
    "torch._dynamo",
    "numpy.ma",
    "grpc._channel",
    "torch.profiler",
    "elasticdl.worker.train",
    "elasticdl.worker.script",
    "elasticdl.worker.leases.train",
    "elasticdl.worker.leases.inference",
    "elasticdl.ps.server.fleet_tasks",
    "elasticdl.ps.server.master_client",
    "elasticdl.ps.server.ps_server",
    "elasticdl.ps.snapshots.writer",
)
FORKED_MODULES = ("elasticdl.worker", "elasticdl.ps")
PADDING_BYTES = 4096  # at least what a master adds to the environment of a replica
REPLY_TIMEOUT_S = 3.0  # a fork takes some 10 ms
STALL_TIMEOUT_S = 3.0  # a server that imports uses processor time; one that uses none for so long is stopped or stuck
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_PR_SET_CHILD_SUBREAPER = 36
_log = logging.getLogger("elasticdl")


class ForkFailed(Exception):
    """The server cannot fork this replica, which must be spawned instead."""


class ForkServer:
    """One fork server. If `is_open` is false after `ForkFailed`, it has ended."""

    def __init__(self, process: WatchedProcess, connection: socket.socket, environ: Mapping[str, str]) -> None:
        self._process = process
        self._connection = connection
        self._environ = environ
        self.is_ready = False  # it has imported everything
        self.is_open = True
        self._used_ticks = 0
        self._checked_at = time.monotonic()

    @classmethod
    def start(cls, environ: Mapping[str, str], now: float, modules: Sequence[str] = PRELOADED_MODULES) -> ForkServer:
        """Start a server whose replicas get `environ`, and additions for each. Raises OSError if it cannot."""
        become_subreaper()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [sys.executable, "-P", "-m", SERVER_MODULE, "--fd", str(theirs.fileno()), "--parent", str(os.getpid())]
        padded = {**environ, PADDING_VARIABLE: "x" * PADDING_BYTES}
        with theirs:
            try:
                process = WatchedProcess.spawn(
                    "fork-server",
                    [*argv, *modules],
                    environ=padded,
                    log=Path(os.devnull),
                    now=now,
                    pass_fds=[theirs.fileno()],
                )
            except OSError:
                ours.close()
                raise
        ours.settimeout(REPLY_TIMEOUT_S)
        return cls(process, ours, dict(environ))

    @property
    def pid(self) -> int:
        return self._process.running.pid

    def fileno(self) -> int:
        """A descriptor that becomes readable when the server is ready, and when it has ended."""
        return self._connection.fileno()

    def receive(self) -> None:
        """Read a message of the server: that it is ready, or has ended."""
        try:
            message = self._connection.recv(MAX_REPLY_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if message == READY:
            self.is_ready = True
            return
        if message:
            _log.warning("the fork server (pid %d): %s", self.pid, message.decode(errors="replace"))
        self.close()

    @property
    def check_interval_s(self) -> float | None:
        """How soon to call `is_stalled`; None once the server is ready."""
        return None if self.is_ready or not self.is_open else STALL_TIMEOUT_S / 2

    def is_stalled(self, now: float) -> bool:
        """Whether a server that is not ready has used no processor time for STALL_TIMEOUT_S."""
        if self.check_interval_s is None:
            return False
        if (ticks := _processor_ticks(self.pid)) != self._used_ticks:
            self._used_ticks, self._checked_at = ticks, now
        return now - self._checked_at >= STALL_TIMEOUT_S

    def can_fork(self, argv: Sequence[str], environ: Mapping[str, str]) -> bool:
        """Whether a replica forked from this server would be the same as a spawned one.

        Its environment may only add variables to the server's: some are read when a module is imported, or by the
        C library when a process starts.
        """
        is_module = list(argv[:3]) == [sys.executable, "-P", "-m"] and argv[3] in FORKED_MODULES
        return is_module and self._environ.items() <= environ.items()

    def fork(
        self, name: str, argv: Sequence[str], *, environ: Mapping[str, str], log: Path, now: float
    ) -> WatchedProcess:
        """Start a replica. Raises ForkFailed if it must be spawned, OSError if it cannot be started either way."""
        added = {key: value for key, value in environ.items() if self._environ.get(key) != value}
        limits = tuple((number, *resource.getrlimit(number)) for number in _LIMITS)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, log.open("ab") as output:
                request = ForkRequest(tuple(argv), added, limits).to_json()
                try:
                    socket.send_fds(self._connection, [request], [output.fileno(), theirs.fileno()])
                except OSError as exc:
                    raise self._failed(f"accepts no request: {exc}") from exc
            ours.settimeout(REPLY_TIMEOUT_S)
            try:
                reply = self._connection.recv(16)
                pid = int(ours.recv(16) or b"0") if reply == FORKED else 0
            except OSError as exc:
                raise self._failed(f"does not answer: {exc or type(exc).__name__}") from exc
            if not reply:
                raise self._failed("has ended")
            if not pid:
                raise ForkFailed("the fork server could not fork")
            child = WatchedProcess.watch_child(name, pid, now)
            ours.send(GO)
            return child

    def _failed(self, reason: str) -> ForkFailed:
        self.close()
        return ForkFailed(f"the fork server (pid {self.pid}) {reason}")

    def close(self) -> None:
        """End the server; its replicas live on."""
        if self.is_open:
            self.is_open = self.is_ready = False
            self._process.signal(signal.SIGKILL)
            self._process.reap(time.time())
            self._connection.close()


def become_subreaper() -> None:
    """Become the parent of descendants whose own parent has ended. Raises OSError if the kernel does not support it."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def reap_orphans(watched_pids: Callable[[], Iterable[int]]) -> None:
    """Reaps ended children that are not watched: processes that replicas started and left behind."""
    with suppress(ChildProcessError):
        while (child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if child.si_pid in set(watched_pids()):
                return  # its pidfd is readable: the loop reaps it next, and the others after it
            os.waitpid(child.si_pid, 0)


def _processor_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def start_fork_server(cpu_capability: str) -> ForkServer:
    """Start a server whose replicas inherit our environment, as spawned ones do. Raises OSError if it cannot."""
    environ = inherited_environ(os.environ)
    settings = allocator_environ(environ) | instruction_set_environ(cpu_capability)
    return ForkServer.start(environ | settings, time.time())


def close_inherited(needed: set[int | None]) -> None:
    """Close descriptors that our starter leaked; no replica may inherit them."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in needed:
            with suppress(OSError):
                os.close(descriptor)
    for needed_descriptor in needed:
        if needed_descriptor is not None:
            os.set_inheritable(needed_descriptor, False)
