"""JSON lines between master and launcher, over a socketpair that one of them inherited from the other.

launcher to master, first and again to every new master:
    {"event": "replicas", "running": [{"replica", "pid", "started_at"}],
                          "exited": [{"replica", "pid", "code", "signal", "at"}]}
then as it happens:
    {"event": "started", "replica", "pid", "at"}
    {"event": "exited", "replica", "pid", "code", "signal", "at", "cause", "peak_bytes", "reason"}
                                                                     code and signal null: nobody could know
    {"event": "detached"}                                            the attached command line is gone
    {"event": "stop", "why"}                                         the job is to stop, with a checkpoint
    {"event": "alive"}                                               the answer to the same command
master to launcher:
    {"command": "launch", "replica", "role", "argv", "environ"}
    {"command": "signal", "replica", "signal"}
    {"command": "alive", "limit_s"}                                  its loop turns; it will say so again within limit_s
    {"command": "over", "exit_code", "grace_s"}                      grace_s may be left out: timing.grace_period_s
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from elasticdl.launcher.interface import ExitedProcess, Replica, RunningProcess

CHUNK_BYTES = 1 << 16
MAX_LINE_BYTES = 64 << 20


def encode_line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def replicas_event(running: Iterable[RunningProcess], exited: Iterable[ExitedProcess]) -> dict[str, Any]:
    alive = [{"replica": one.replica, "pid": one.pid, "started_at": one.started_at} for one in running]
    return {"event": "replicas", "running": alive, "exited": [asdict(one) for one in exited]}


def started_event(one: RunningProcess) -> dict[str, Any]:
    return {"event": "started", "replica": one.replica, "pid": one.pid, "at": one.started_at}


def exited_event(one: ExitedProcess) -> dict[str, Any]:
    return {"event": "exited"} | asdict(one)


def launch_command(replica: Replica) -> dict[str, Any]:
    return {
        "command": "launch",
        "replica": replica.name,
        "role": replica.role,
        "argv": list(replica.argv),
        "environ": dict(replica.environ),
    }


class MalformedLine(Exception):
    """What arrived is no line of JSON with a document in it: the other end is none of ours."""


class JsonLineDecoder:
    """Bytes in, whole documents out. A line that is none is Garbled, and so is one without an end."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()

    def feed(self, received: bytes) -> list[dict[str, Any]]:
        *whole, rest = received.split(b"\n")
        documents = []
        for line in whole:
            self._rest += line
            if self._rest:
                documents.append(_decode_line(bytes(self._rest)))
            self._rest.clear()
        self._rest += rest
        if len(self._rest) > self._max_bytes:
            raise MalformedLine(
                f"expected a line of at most {self._max_bytes} bytes, received {len(self._rest)} without an end"
            )
        return documents


def _decode_line(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise MalformedLine(f"expected a line of JSON, received {line[:200]!r}: {exc}") from exc
    if not isinstance(found, dict):
        raise MalformedLine(f"expected a JSON document, received {line[:200]!r}")
    return found


class JsonLineSocket:
    """One end of the socketpair that never blocks: what cannot be sent yet is kept."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._lines = JsonLineDecoder()
        self._unsent = bytearray()
        self.is_open = True  # false once the other end is gone

    def fileno(self) -> int:
        return self._end.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent) and self.is_open

    def send(self, document: dict[str, Any]) -> None:
        self._unsent += encode_line(document)
        self.flush()

    def flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._end.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            # The other end is gone. What it missed is in the `replicas` event its successor gets.
            self._unsent.clear()

    def receive(self) -> list[dict[str, Any]]:
        """Everything that has arrived."""
        documents: list[dict[str, Any]] = []
        while self.is_open:
            try:
                received = self._end.recv(CHUNK_BYTES)
            except BlockingIOError:
                break
            except OSError:
                received = b""
            documents += self._lines.feed(received)
            self.is_open = bool(received)
        return documents

    def close(self) -> None:
        self.is_open = False
        self._end.close()
