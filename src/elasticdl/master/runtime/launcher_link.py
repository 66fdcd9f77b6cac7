"""The master's end of the socketpair to its launcher: commands out, events of replicas in."""

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
_HEARTBEAT_S = 1.0  # between two words that the loop turns


class LauncherConnection:
    """Speaks with one launcher after another: when one dies, `adopt` starts the next. `kill` ends one that hangs."""

    def __init__(
        self,
        end: socket.socket,
        adopt: Callable[[], socket.socket],
        kill: Callable[[], None],
        on_event: Callable[[ev.Event], None],
    ) -> None:
        self._end = end
        self._adopt = adopt
        self._kill = kill
        self._on_event = on_event
        self._vigil = LoopMonitor()  # over the launcher
        self._limit_s = 0.0
        self._writer: asyncio.StreamWriter | None = None

    def execute(self, command: Command) -> None:
        """Send a command. Without a launcher it is dropped: its successor's list of replicas corrects that."""
        if self._writer is not None:
            self._writer.write(wire.encode_line(wire.command_document(command)))

    async def flush(self) -> None:
        if self._writer is not None:
            try:
                await self._writer.drain()
            except ConnectionError:
                _log.warning("the launcher is gone")

    async def run(self) -> None:
        """Read until cancelled."""
        end = self._end
        while True:
            self._vigil = LoopMonitor()
            reader, self._writer = await asyncio.open_connection(sock=end, limit=_LINE_BYTES)
            await self._read(reader)
            self._writer.close()
            self._writer = None
            _log.warning("the launcher is gone; starting another, the job goes on meanwhile")
            await asyncio.sleep(_ADOPT_DELAY_S)
            end = self._adopt()

    async def send_heartbeats(self, limit_s: float) -> None:
        """Tell the launcher that the loop turns, until cancelled, and look whether it answers.

        Either kills the other where it is silent for `limit_s`.
        """
        self._limit_s = limit_s
        while True:
            self.execute(HeartbeatCommand(limit_s))
            if self._vigil.check(time.monotonic()) is LoopHealth.STALLED:
                _log.error("the launcher has answered nothing for %g s: it is killed and replaced", limit_s)
                self._vigil = LoopMonitor()
                self._kill()
            await asyncio.sleep(min(_HEARTBEAT_S, limit_s / CHECKS_PER_LIMIT))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                report = wire.parse_report(json.loads(line))
                if isinstance(report, HeartbeatReport):
                    self._vigil.record_heartbeat(time.monotonic(), self._limit_s)
                elif (event := event_from_report(report)) is not None:
                    self._on_event(event)
        except ConnectionError:
            return


def event_from_report(report: Report) -> ev.Event | None:
    """The event that a report means to the job; None for a heartbeat."""
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
