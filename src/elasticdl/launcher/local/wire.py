"""JSON lines between master and launcher, over a socketpair.

A line is a command or a report of `launcher.interface`: its name under "command" or "event", and its fields.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from elasticdl.launcher.interface import (
    Command,
    DelayedReport,
    DetachedReport,
    EndCommand,
    ExitedProcess,
    HeartbeatCommand,
    HeartbeatReport,
    LaunchCommand,
    ReplicasReport,
    Report,
    SignalCommand,
    StartedReport,
    StopReport,
)

CHUNK_BYTES = 1 << 16
MAX_LINE_BYTES = 64 << 20


def encode_line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


_COMMAND_NAMES: dict[type[Any], str] = {
    LaunchCommand: "launch",
    SignalCommand: "signal",
    HeartbeatCommand: "heartbeat",
    EndCommand: "end",
}
_REPORT_NAMES: dict[type[Any], str] = {
    ReplicasReport: "replicas",
    StartedReport: "started",
    ExitedProcess: "exited",
    DelayedReport: "delayed",
    DetachedReport: "detached",
    StopReport: "stop",
    HeartbeatReport: "heartbeat",
}
_COMMANDS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for kind, name in _COMMAND_NAMES.items()}
_REPORTS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for kind, name in _REPORT_NAMES.items()}


def command_document(command: Command) -> dict[str, Any]:
    return {"command": _COMMAND_NAMES[type(command)]} | asdict(command)


def report_document(report: Report) -> dict[str, Any]:
    return {"event": _REPORT_NAMES[type(report)]} | asdict(report)


def parse_command(document: dict[str, Any]) -> Command:
    """The command in a line. Raises MalformedLine for an unknown command or a missing field."""
    command: Command = _parse(_COMMANDS, document, "command")
    return command


def parse_report(document: dict[str, Any]) -> Report:
    """The report in a line. Raises MalformedLine for an unknown report or a missing field."""
    report: Report = _parse(_REPORTS, document, "event")
    return report


def _parse(adapters: Mapping[str, TypeAdapter[Any]], document: dict[str, Any], key: str) -> Any:
    adapter = adapters.get(str(document.get(key)))
    if adapter is None:
        raise MalformedLine(f"expected one of {', '.join(adapters)} as {key}, received {document!r:.200}")
    try:
        return adapter.validate_python(document)
    except ValidationError as exc:
        raise MalformedLine(f"expected the fields of {document[key]}, received {document!r:.200}: {exc}") from exc


class MalformedLine(Exception):
    """The received bytes are not a line with a JSON document."""


class JsonLineDecoder:
    """Bytes in, complete documents out. Raises MalformedLine for a line that is not JSON, or is too long."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._unfinished = bytearray()

    def feed(self, received: bytes) -> list[dict[str, Any]]:
        *lines, unfinished = received.split(b"\n")
        documents = []
        for line in lines:
            self._unfinished += line
            if self._unfinished:
                documents.append(_decode_line(bytes(self._unfinished)))
            self._unfinished.clear()
        self._unfinished += unfinished
        if len(self._unfinished) > self._max_bytes:
            raise MalformedLine(
                f"expected a line of at most {self._max_bytes} bytes, received {len(self._unfinished)} without an end"
            )
        return documents


def _decode_line(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise MalformedLine(f"expected a line of JSON, received {line[:200]!r}: {exc}") from exc
    if not isinstance(document, dict):
        raise MalformedLine(f"expected a JSON document, received {line[:200]!r}")
    return document


class JsonLineSocket:
    """One end of the socketpair. It never blocks: bytes that cannot be sent yet are buffered."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._lines = JsonLineDecoder()
        self._unsent = bytearray()
        self.is_open = True  # false once the other end is closed

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
            # The other end is closed. The next master gets everything in its ReplicasReport.
            self._unsent.clear()

    def receive(self) -> list[dict[str, Any]]:
        """All documents that have arrived."""
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
