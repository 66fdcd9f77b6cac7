"""The master's journal: what is read is a prefix of what was written, or an error says that it is damaged.

An input is used in two ways: as a journal, and as instructions to damage a valid one.
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
    """Returns the records; None if the journal is refused."""
    decoder = FrameDecoder(io.BytesIO(stream).read, len(stream), can_be_torn=can_be_torn)
    try:
        read = list(decoder.read_records())
    except (JournalDamaged, JournalUnreadable) as exc:
        str(exc).encode()  # it can be printed
        return None
    assert decoder.offset + decoder.torn_bytes == len(stream)
    for record in read:
        try:
            codec.decode_event(record)
        except codec.UnknownEvent as exc:
            str(exc).encode(errors="replace")
    return read


def _damage(data: bytes) -> None:
    """Flips a bit of a valid journal or truncates it, as the input says."""
    stream, ends, records = _valid_journal()
    position = int.from_bytes(data[:4], "little") % len(stream)
    prefix = _read(stream[:position])
    assert prefix is None or prefix == records[: sum(end <= position for end in ends)]
    damaged = bytearray(stream)
    damaged[position] ^= 1 << (data[4] % 8 if len(data) > 4 else 0)
    assert _read(bytes(damaged)) is None


def _reframe(data: bytes) -> None:
    """Writes the input as the records of a valid stream: any bytes come back."""
    records = data.split(b"\n")
    encoder = FrameEncoder(JournalWriterInfo(run=1))
    assert _read(encoder.begin_stream() + encoder.encode_records(records), can_be_torn=False) == records


def _read_head(data: bytes) -> None:
    """Reads the input as the head of a journal in ConfigMaps."""
    try:
        head = JournalHead.from_segment(JournalSegment(0, "head", "writer", data))
        journal_segments.select_segments(JournalSegment(0, "head", "writer", head.to_bytes()), [])
    except (JournalDamaged, JournalUnreadable):
        return
    assert head.segments == ()


def _valid_journal() -> tuple[bytes, list[int], list[bytes]]:
    """Returns a journal, the end of each of its writes, and its records (one for each write)."""
    encoder, records = FrameEncoder(JournalWriterInfo(run=1)), [codec.encode_event(event, 1.5) for event in _EVENTS]
    stream, ends = encoder.begin_stream(), list[int]()
    for record in records:
        stream += encoder.encode_records([record])
        ends.append(len(stream))
    return stream, ends, records


def seeds() -> Iterator[bytes]:
    stream, _, records = _valid_journal()
    yield stream
    yield stream[:-7]
    yield b"\n".join(records)
    yield JournalHead(((1, "a-1"), (2, "a-2")), True).to_bytes()
