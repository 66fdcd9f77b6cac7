"""JSON lines between launcher and master, whole and in pieces: documents, or the one declared error."""

from __future__ import annotations

from collections.abc import Iterator

from elasticdl.launcher import wire
from elasticdl.launcher.interface import Exited, Replica, Running


def fuzz_one(data: bytes) -> None:
    assert _read(data, len(data) + 1) == _read(data, 7)


def _read(data: bytes, piece: int) -> list[object] | str:
    lines = wire.Lines()
    found: list[object] = []
    try:
        for at in range(0, len(data), piece):
            found += lines.feed(data[at : at + piece])
    except wire.Garbled:
        return "garbled"
    assert all(isinstance(one, dict) for one in found)
    return found


def seeds() -> Iterator[bytes]:
    one = Running("worker-0", 12, 34.5, 5)
    yield wire.encode(wire.replicas([one], [Exited("worker-1", 13, None, 9, 6.5)]))
    yield wire.encode(wire.started(one)) + wire.encode({"event": "detached"})
    yield wire.encode(wire.launch(Replica("worker-2", "worker", ("python", "-m", "elasticdl.worker"), {"A": "ü"})))
    yield b'{"command":"over","exit_code":0,"grace_s":1.5}\n{"command"'
