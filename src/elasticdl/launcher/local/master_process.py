"""The launcher's side of one master: its process and the socketpair to it."""

from __future__ import annotations

import selectors
import socket
import sys
from collections.abc import Callable, Mapping

from elasticdl.launcher.interface import Command, Report
from elasticdl.launcher.local import wire
from elasticdl.launcher.local.watched_process import WatchedProcess
from elasticdl.spec.directory import JobDirectory

MASTER_MODULE = "elasticdl.master"


class MasterProcess:
    """A master and the connection to it.

    Calls `on_command` for each command of the master, and `on_end` once, when its process has ended.
    """

    def __init__(
        self,
        process: WatchedProcess,
        end: socket.socket,
        selector: selectors.BaseSelector,
        on_command: Callable[[Command], None],
        on_end: Callable[[], None],
    ) -> None:
        self.child = process
        self._selector = selector
        self._connection = wire.JsonLineSocket(end)
        self._on_command = on_command
        self._on_end = on_end

    def watch(self) -> None:
        self._selector.register(self.child, selectors.EVENT_READ, lambda _: self._end())
        self._selector.register(self._connection, selectors.EVENT_READ, self._ready)

    def send(self, report: Report) -> None:
        self._connection.send(wire.report_document(report))
        self._update_selector()

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._connection.flush()
        for document in self._connection.receive():
            self._on_command(wire.parse_command(document))
        self._update_selector()

    def _update_selector(self) -> None:
        if self._connection.fileno() not in self._selector.get_map():
            return
        if not self._connection.is_open:
            # A closed connection is always readable; the end of the process is seen by its pidfd.
            self._selector.unregister(self._connection)
        else:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._connection.has_unsent else 0)
            self._selector.modify(self._connection, events, self._ready)

    def _end(self) -> None:
        # Its last commands may still be unread, EndCommand among them.
        self._ready(selectors.EVENT_READ)
        if self._connection.is_open:
            self._selector.unregister(self._connection)
        self._connection.close()
        self._selector.unregister(self.child)
        self._on_end()


def start_master(
    directory: JobDirectory, run: int, module: str, environ: Mapping[str, str], now: float
) -> tuple[WatchedProcess, socket.socket]:
    """Start a master; returns it, and our end of the socketpair to it."""
    ours, theirs = socket.socketpair()
    with theirs:
        argv = [sys.executable, "-P", "-m", module, str(directory.root)]
        argv += ["--launcher-fd", str(theirs.fileno()), "--run", str(run)]
        log, pass_fds = directory.log_file("master"), [theirs.fileno()]
        return WatchedProcess.spawn("master", argv, environ=environ, log=log, now=now, pass_fds=pass_fds), ours
