"""JSON lines between launcher and master, at once and in pieces: documents, or the one declared error."""

from __future__ import annotations

from collections.abc import Iterator

from elasticdl.launcher.interface import DetachedReport, ExitedProcess, LaunchCommand, ReplicasReport, StartedReport
from elasticdl.launcher.local import wire


def fuzz_one(data: bytes) -> None:
    assert _read(data, len(data) + 1) == _read(data, 7)


def _read(data: bytes, piece: int) -> list[object] | str:
    lines = wire.JsonLineDecoder()
    documents: list[object] = []
    try:
        for start in range(0, len(data), piece):
            documents += lines.feed(data[start : start + piece])
    except wire.MalformedLine:
        return "malformed"
    assert all(isinstance(document, dict) for document in documents)
    return documents


def seeds() -> Iterator[bytes]:
    started = StartedReport("worker-0", 12, 34.5)
    yield wire.encode_line(
        wire.report_document(ReplicasReport((started,), (ExitedProcess("worker-1", 13, None, 9, 6.5),)))
    )
    yield b"".join(wire.encode_line(wire.report_document(report)) for report in (started, DetachedReport()))
    yield wire.encode_line(
        wire.command_document(LaunchCommand("worker-2", "worker", ("python", "-m", "elasticdl.worker"), {"A": "ü"}))
    )
    yield b'{"command":"end","exit_code":0,"grace_s":1.5}\n{"command"'
