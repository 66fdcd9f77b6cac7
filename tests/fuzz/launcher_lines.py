"""JSON lines between launcher and master, whole and in pieces: documents, or the one declared error."""

from __future__ import annotations

from collections.abc import Iterator

from elasticdl.launcher.interface import ExitedProcess, Replica, RunningProcess
from elasticdl.launcher.local import wire


def fuzz_one(data: bytes) -> None:
    assert _read(data, len(data) + 1) == _read(data, 7)


def _read(data: bytes, piece: int) -> list[object] | str:
    lines = wire.JsonLineDecoder()
    found: list[object] = []
    try:
        for at in range(0, len(data), piece):
            found += lines.feed(data[at : at + piece])
    except wire.MalformedLine:
        return "garbled"
    assert all(isinstance(one, dict) for one in found)
    return found


def seeds() -> Iterator[bytes]:
    one = RunningProcess("worker-0", 12, 34.5, 5)
    yield wire.encode_line(wire.replicas_event([one], [ExitedProcess("worker-1", 13, None, 9, 6.5)]))
    yield wire.encode_line(wire.started_event(one)) + wire.encode_line({"event": "detached"})
    yield wire.encode_line(
        wire.launch_command(Replica("worker-2", "worker", ("python", "-m", "elasticdl.worker"), {"A": "ü"}))
    )
    yield b'{"command":"over","exit_code":0,"grace_s":1.5}\n{"command"'
