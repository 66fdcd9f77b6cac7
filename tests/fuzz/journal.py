"""The master's journal: what is read is a beginning of what was written, or an error says that it is damaged.

An input is taken in two ways: as a journal, and as instructions how to damage a right one.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from elasticdl.errors import JournalDamaged, JournalUnreadable
from elasticdl.journal_frames import FrameDecoder, FrameEncoder, JournalWriterInfo
from elasticdl.master.kubernetes import journal_segments
from elasticdl.master.kubernetes.journal_segments import JournalHead, JournalSegment
from elasticdl.master.machine import events as ev
from elasticdl.master.runtime import codec
from elasticdl.spec import WorkerId

MEMORY_BYTES = 4 << 20

_EVENTS: list[Any] = [
    ev.MasterStarted(7),
    ev.ReplicaStarted("worker-0", 5),
    ev.RoundPlanned(2, (ev.RankAssignment(WorkerId("worker-0"), 0, 4, "worker-1"),), False, "joins"),
    ev.StopRequested(False, "enough"),
]


def fuzz_one(data: bytes) -> None:
    _read(data)
    _damage(data)
    _reframe(data)
    _read_head(data)


def _read(stream: bytes, *, can_be_torn: bool = True) -> list[bytes] | None:
    """The records; None where they are refused."""
    decoder = FrameDecoder(io.BytesIO(stream).read, len(stream), can_be_torn=can_be_torn)
    try:
        found = list(decoder.read_records())
    except (JournalDamaged, JournalUnreadable) as exc:
        str(exc).encode()  # it can be shown
        return None
    assert decoder.offset + decoder.torn_bytes == len(stream)
    for record in found:
        try:
            codec.decode_event(record)
        except codec.UnknownEvent as exc:
            str(exc).encode(errors="replace")
    return found


def _damage(data: bytes) -> None:
    """One bit of a right journal is flipped, or its end cut off, as the input says."""
    stream, ends, records = _right()
    position = int.from_bytes(data[:4], "little") % len(stream)
    found = _read(stream[:position])
    assert found is None or found == records[: sum(end <= position for end in ends)]
    damaged = bytearray(stream)
    damaged[position] ^= 1 << (data[4] % 8 if len(data) > 4 else 0)
    assert _read(bytes(damaged)) is None


def _reframe(data: bytes) -> None:
    """The input as records of a right stream: these come back, whatever they hold."""
    records = data.split(b"\n")
    encoder = FrameEncoder(JournalWriterInfo(run=1))
    assert _read(encoder.begin_stream() + encoder.encode_records(records), can_be_torn=False) == records


def _read_head(data: bytes) -> None:
    """Of the journal in ConfigMaps."""
    try:
        head = JournalHead.from_segment(JournalSegment(0, "head", "writer", data))
        journal_segments.select_segments(JournalSegment(0, "head", "writer", head.to_bytes()), [])
    except (JournalDamaged, JournalUnreadable):
        return
    assert head.segments == ()


def _right() -> tuple[bytes, list[int], list[bytes]]:
    """A journal, where each of its writes ends, and its records: one of each write."""
    encoder, records = FrameEncoder(JournalWriterInfo(run=1)), [codec.encode_event(event, 1.5) for event in _EVENTS]
    stream, ends = encoder.begin_stream(), list[int]()
    for record in records:
        stream += encoder.encode_records([record])
        ends.append(len(stream))
    return stream, ends, records


def seeds() -> Iterator[bytes]:
    stream, _, records = _right()
    yield stream
    yield stream[:-7]
    yield b"\n".join(records)
    yield JournalHead(((1, "a-1"), (2, "a-2")), True).to_bytes()
