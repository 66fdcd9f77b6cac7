"""The master's connection to its launcher: sends commands, receives reports about replicas."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Callable

from elasticdl.launcher.interface import (
    Command,
    DelayedReport,
    DetachedReport,
    ExitedProcess,
    HeartbeatCommand,
    HeartbeatReport,
    ReplicasReport,
    Report,
    StartedReport,
    StopReport,
)
from elasticdl.launcher.local import wire
from elasticdl.launcher.loop_monitor import CHECKS_PER_LIMIT, LoopHealth, LoopMonitor
from elasticdl.master.machine import events as ev

_log = logging.getLogger(__name__)
_LINE_BYTES = 1 << 24
_ADOPT_DELAY_S = 1.0
_HEARTBEAT_S = 1.0  # between two heartbeats of the loop


class LauncherConnection:
    """Connects to one launcher after another: `adopt` starts a new one when one ends, `kill` ends one that hangs."""

    def __init__(
        self,
        connection: socket.socket,
        adopt: Callable[[], socket.socket],
        kill: Callable[[], None],
        on_event: Callable[[ev.Event], None],
    ) -> None:
        self._connection = connection
        self._adopt = adopt
        self._kill = kill
        self._on_event = on_event
        self._monitor = LoopMonitor()  # of the launcher
        self._silence_limit_s = 0.0
        self._writer: asyncio.StreamWriter | None = None

    def execute(self, command: Command) -> None:
        """Sends a command. Without a launcher it is dropped: the next launcher's list of replicas makes up for it."""
        if self._writer is not None:
            self._writer.write(wire.encode_line(wire.command_document(command)))

    async def flush(self) -> None:
        if self._writer is not None:
            try:
                await self._writer.drain()
            except ConnectionError:
                _log.warning("the launcher has ended")

    async def run(self) -> None:
        """Reads reports until cancelled."""
        connection = self._connection
        while True:
            self._monitor = LoopMonitor()
            reader, self._writer = await asyncio.open_connection(sock=connection, limit=_LINE_BYTES)
            await self._read(reader)
            self._writer.close()
            self._writer = None
            _log.warning("the launcher has ended; starting another while the job continues")
            await asyncio.sleep(_ADOPT_DELAY_S)
            connection = self._adopt()

    async def send_heartbeats(self, limit_s: float) -> None:
        """Sends heartbeats of the master's loop until cancelled, and checks that the launcher answers.

        Each side kills the other if it is silent for `limit_s`.
        """
        self._silence_limit_s = limit_s
        while True:
            self.execute(HeartbeatCommand(limit_s))
            if self._monitor.check(time.monotonic()) is LoopHealth.STALLED:
                _log.error("the launcher has not answered for %g s: killing and replacing it", limit_s)
                self._monitor = LoopMonitor()
                self._kill()
            await asyncio.sleep(min(_HEARTBEAT_S, limit_s / CHECKS_PER_LIMIT))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                report = wire.parse_report(json.loads(line))
                if isinstance(report, HeartbeatReport):
                    self._monitor.record_heartbeat(time.monotonic(), self._silence_limit_s)
                elif (event := event_from_report(report)) is not None:
                    self._on_event(event)
        except ConnectionError:
            return


def event_from_report(report: Report) -> ev.Event | None:
    """The event for a report of the launcher; None for a heartbeat."""
    match report:
        case ReplicasReport(running, exited):
            started = tuple((replica.replica, replica.pid) for replica in running)
            return ev.ReplicasListed(started, tuple(map(_replica_exit, exited)))
        case StartedReport(replica, pid):
            return ev.ReplicaStarted(replica, pid)
        case ExitedProcess():
            return ev.ReplicaExited(_replica_exit(report))
        case DelayedReport(replica, reason, is_trouble):
            return ev.ReplicaDelayed(replica, reason, is_trouble)
        case DetachedReport():
            return ev.TerminalDetached()
        case StopReport(reason):
            return ev.StopRequested(False, reason)
    return None


def _replica_exit(exited: ExitedProcess) -> ev.ReplicaExit:
    return ev.ReplicaExit(
        exited.replica, exited.pid, exited.code, exited.signal, exited.cause, exited.reason, exited.peak_bytes
    )
