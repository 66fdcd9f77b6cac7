"""The master's end of the socketpair to its launcher: commands out, events of replicas in."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

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

    def command(self, **document: Any) -> None:
        """Send a command. Without a launcher it is dropped: its successor's list of replicas corrects that."""
        if self._writer is not None:
            self._writer.write(json.dumps(document, separators=(",", ":")).encode() + b"\n")

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
            self.command(command="alive", limit_s=limit_s)
            if self._vigil.check(time.monotonic()) is LoopHealth.STALLED:
                _log.error("the launcher has answered nothing for %g s: it is killed and replaced", limit_s)
                self._vigil = LoopMonitor()
                self._kill()
            await asyncio.sleep(min(_HEARTBEAT_S, limit_s / CHECKS_PER_LIMIT))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                document = json.loads(line)
                if document["event"] == "alive":
                    self._vigil.record_heartbeat(time.monotonic(), self._limit_s)
                elif (event := parse_launcher_event(document)) is not None:
                    self._on_event(event)
        except ConnectionError:
            return


def parse_launcher_event(document: dict[str, Any]) -> ev.Event | None:
    match document["event"]:
        case "replicas":
            running = tuple((str(one["replica"]), int(one["pid"])) for one in document["running"])
            return ev.ReplicasListed(running, tuple(_parse_exit(one) for one in document["exited"]))
        case "started":
            return ev.ReplicaStarted(document["replica"], document["pid"])
        case "exited":
            return ev.ReplicaExited(_parse_exit(document))
        case "waiting":
            return ev.ReplicaDelayed(document["replica"], document["why"], document["trouble"])
        case "detached":
            return ev.TerminalDetached()
        case "stop":
            return ev.StopRequested(False, document["why"])
    _log.warning("the launcher said something unknown: %s", document)
    return None


def _parse_exit(one: dict[str, Any]) -> ev.ReplicaExit:
    return ev.ReplicaExit(
        one["replica"],
        one["pid"],
        one["code"],
        one["signal"],
        one.get("cause", ""),
        one.get("why") or one.get("reason", ""),
        one.get("peak_bytes", 0),
    )
