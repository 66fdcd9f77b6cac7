"""Starts replicas: forks them from a server that has imported torch if possible, or spawns a new interpreter."""

from __future__ import annotations

import logging
import selectors
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticdl.clock import Clock
from elasticdl.launcher.local.fork_client import ForkFailed, ForkServer
from elasticdl.launcher.local.oom import OomDetector
from elasticdl.launcher.local.watched_process import WatchedProcess

MAX_SERVERS = 3  # how many fork servers a launcher starts if they die
_log = logging.getLogger("elasticdl")


@dataclass(frozen=True, slots=True)
class ReplicaCommand:
    """The command of one replica. Only one that needs torch waits for a server that is still importing it."""

    name: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    log: Path
    needs_torch: bool = True


class ReplicaStarter:
    """Calls `on_started` or `on_failed` once for each command: at once, or when the fork server is ready.

    Replicas that wait for the server are spawned if it dies or hangs.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        clock: Clock,
        oom: OomDetector,
        on_started: Callable[[WatchedProcess], None],
        on_failed: Callable[[ReplicaCommand, OSError], None],
    ) -> None:
        self._selector = selector
        self._clock = clock
        self._oom = oom
        self._on_started = on_started
        self._on_failed = on_failed
        self._server: ForkServer | None = None
        self._start_server: Callable[[], ForkServer] | None = None
        self._servers = 0
        self._waiting: dict[str, ReplicaCommand] = {}

    def use_server(self, server: ForkServer | None, start_another: Callable[[], ForkServer]) -> None:
        """Fork replicas from now on, from `server` or from a new one."""
        self._start_server = start_another
        if server is None:
            self._replace_server()
        else:
            self._watch(server)

    @property
    def server_pids(self) -> list[int]:
        return [self._server.pid] if self._server else []

    @property
    def check_interval_s(self) -> float | None:
        """How soon to call `check`; None: never."""
        return self._server.check_interval_s if self._server else None

    def is_waiting(self, name: str) -> bool:
        return name in self._waiting

    def start(self, command: ReplicaCommand) -> None:
        server = self._server
        if (
            server is not None
            and not server.is_ready
            and command.needs_torch
            and server.can_fork(command.argv, command.environ)
        ):
            self._waiting[command.name] = command
        else:
            self._start(command)

    def spawn_waiting(self) -> None:
        """Spawn the replicas that wait for the server."""
        while self._waiting:
            self._spawn(self._waiting.pop(next(iter(self._waiting))))

    def cancel_waiting(self) -> None:
        self._waiting.clear()

    def check(self) -> None:
        """Replace a server that hangs while it imports."""
        if self._server is not None and self._server.is_stalled(time.monotonic()):
            self._forget_server("hangs while it imports")

    def close(self) -> None:
        self._start_server = None
        if self._server is not None:
            self._selector.unregister(self._server)
            self._server.close()
            self._server = None

    def _start(self, command: ReplicaCommand) -> None:
        server = self._server
        if server is None or not server.is_ready or not server.can_fork(command.argv, command.environ):
            self._spawn(command)
            return
        try:
            child = server.fork(
                command.name, command.argv, environ=command.environ, log=command.log, now=self._clock.now()
            )
        except ForkFailed as exc:
            _log.warning("%s is started in a new interpreter: %s", command.name, exc)
            if not server.is_open:
                self._forget_server(str(exc))
            self._spawn(command)
        except OSError as exc:
            self._on_failed(command, exc)
        else:
            _log.info("%s (pid %d) was forked by pid %d", command.name, child.running.pid, server.pid)
            self._on_started(child)

    def _spawn(self, command: ReplicaCommand) -> None:
        try:
            child = WatchedProcess.spawn(
                command.name, command.argv, environ=command.environ, log=command.log, now=self._clock.now()
            )
        except OSError as exc:
            self._on_failed(command, exc)
        else:
            self._on_started(child)

    def _watch(self, server: ForkServer) -> None:
        self._server = server
        self._servers += 1
        self._selector.register(server, selectors.EVENT_READ, lambda _: self._receive())

    def _receive(self) -> None:
        server = self._server
        assert server is not None
        server.receive()
        if not server.is_open:
            self._forget_server("has ended")
        while self._waiting and self._server is server and server.is_ready:
            self._start(self._waiting.pop(next(iter(self._waiting))))

    def _forget_server(self, reason: str) -> None:
        """Spawn the replicas that wait for the server, and start another server for later ones."""
        server, self._server = self._server, None
        assert server is not None
        _log.warning("replacing the fork server (pid %d): %s", server.pid, reason)
        self._selector.unregister(server)
        self._oom.was_killed(server.pid)  # so that a kill of the server is not attributed to a replica
        server.close()
        self.spawn_waiting()
        self._replace_server()

    def _replace_server(self) -> None:
        if self._start_server is None or self._servers >= MAX_SERVERS:
            return
        try:
            self._watch(self._start_server())
        except OSError as exc:
            _log.warning("cannot start a fork server, replicas are spawned: %s", exc)
