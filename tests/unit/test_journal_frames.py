"""Any damage of a journal is refused, any end that was cut off is recognised; never is anything else read."""

from __future__ import annotations

import io
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.errors import JournalDamaged, JournalUnreadable
from elasticdl.journal_frames import FORMAT, MAGIC, SECTOR_BYTES, FrameDecoder, FrameEncoder, JournalWriterInfo

# As JSON, and larger than a sector now and then.
records = st.integers(0, 1500).map(lambda size: b"[%s]" % (b"1" * size))
writes = st.lists(st.lists(records, min_size=1, max_size=3), max_size=6)


def stream_of(writes: list[list[bytes]]) -> tuple[bytes, list[int]]:
    """The stream, and where each of its writes ends, the beginning first."""
    encoder = FrameEncoder(JournalWriterInfo(run=3))
    stream = encoder.begin_stream()
    ends = [len(stream)]
    for write in writes:
        stream += encoder.encode_records(write)
        ends.append(len(stream))
    return stream, ends


def read(stream: bytes, *, can_be_torn: bool = True) -> tuple[list[bytes], FrameDecoder]:
    decoder = FrameDecoder(io.BytesIO(stream).read, len(stream), can_be_torn=can_be_torn)
    return list(decoder.read_records()), decoder


def records_until(writes: list[list[bytes]], ends: list[int], size: int) -> list[bytes]:
    return [record for write, end in zip(writes, ends[1:], strict=True) if end <= size for record in write]


@given(writes)
def test_what_was_written_is_read(writes: list[list[bytes]]) -> None:
    stream, _ = stream_of(writes)

    records, decoder = read(stream)

    assert records == [record for write in writes for record in write]
    assert (decoder.offset, decoder.torn_bytes, decoder.writer) == (len(stream), 0, JournalWriterInfo(run=3))


@given(writes, st.data())
def test_a_flipped_bit_is_always_refused(writes: list[list[bytes]], data: st.DataObject) -> None:
    stream, _ = stream_of(writes)
    bit = data.draw(st.integers(0, 8 * len(stream) - 1))
    damaged = bytearray(stream)
    damaged[bit // 8] ^= 1 << bit % 8

    with pytest.raises((JournalDamaged, JournalUnreadable)):
        read(bytes(damaged))


def test_each_bit_of_a_journal_is_looked_after() -> None:
    stream, _ = stream_of([[b"[1]", b"[22]"], [b'{"state":3}'], [b"[4]"]])
    for bit in range(8 * len(stream)):
        damaged = bytearray(stream)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((JournalDamaged, JournalUnreadable)):
            read(bytes(damaged))


@given(writes, st.data())
def test_an_end_that_is_missing_is_torn_back_to_the_last_whole_write(
    writes: list[list[bytes]], data: st.DataObject
) -> None:
    stream, ends = stream_of(writes)
    size = data.draw(st.integers(ends[0], len(stream)))

    records, decoder = read(stream[:size])

    assert records == records_until(writes, ends, size)
    assert decoder.offset == max(end for end in ends if end <= size)
    assert decoder.torn_bytes == size - decoder.offset


@given(writes, st.data())
def test_where_writes_are_whole_a_missing_end_within_one_is_damage(
    writes: list[list[bytes]], data: st.DataObject
) -> None:
    stream, ends = stream_of(writes)
    size = data.draw(st.integers(0, len(stream)))
    if size in ends:
        assert read(stream[:size], can_be_torn=False)[0] == records_until(writes, ends, size)
        return

    with pytest.raises(JournalDamaged):
        read(stream[:size], can_be_torn=False)


@given(writes.filter(bool), st.data())
def test_sectors_of_the_last_write_that_never_reached_the_disk_are_a_torn_end(
    writes: list[list[bytes]], data: st.DataObject
) -> None:
    stream, ends = stream_of(writes)
    start = ends[-2]
    starts = [start, *range(start - start % SECTOR_BYTES + SECTOR_BYTES, len(stream), SECTOR_BYTES)]
    sectors = list(pairwise([*starts, len(stream)]))
    first_lost = data.draw(st.integers(0, len(sectors) - 1))
    # The head and what follows it, or what follows it alone.
    lost = sectors if first_lost == 0 else data.draw(st.lists(st.sampled_from(sectors[1:]), min_size=1))
    content = bytearray(stream)
    for begin, end in lost:
        content[begin:end] = bytes(end - begin)

    if content[start : start + 16] != stream[start : start + 16] and any(content[start:]):
        return  # half a head: refused, which is safe
    records, decoder = read(bytes(content))

    assert records == records_until(writes, ends, start)
    assert decoder.offset == start


@given(writes.filter(lambda writes: len(writes) > 1), st.data())
def test_a_write_that_is_missing_doubled_or_moved_is_refused(writes: list[list[bytes]], data: st.DataObject) -> None:
    stream, ends = stream_of(writes)
    frames = [stream[begin:end] for begin, end in pairwise(ends)]
    first = data.draw(st.integers(0, len(frames) - 2))
    changed = data.draw(
        st.sampled_from(
            [
                frames[:first] + frames[first + 1 :],
                frames[: first + 1] + frames[first:],
                [*frames[:first], frames[first + 1], frames[first], *frames[first + 2 :]],
            ]
        )
    )

    with pytest.raises(JournalDamaged):
        read(stream[: ends[0]] + b"".join(changed))


@given(st.lists(writes, min_size=2, max_size=3))
def test_who_goes_on_with_a_journal_continues_its_stream(parts: list[list[list[bytes]]]) -> None:
    stream, _ = stream_of(parts[0])
    for run, part in enumerate(parts[1:], start=4):
        encoder = read(stream)[1].continue_writing(JournalWriterInfo(run=run))
        stream += encoder.encode_writer() + b"".join(encoder.encode_records(write) for write in part)

    records, decoder = read(stream)

    assert records == [record for part in parts for write in part for record in write]
    assert decoder.writer == JournalWriterInfo(run=2 + len(parts))


def test_a_stream_of_a_later_format_names_who_wrote_it() -> None:
    encoder = FrameEncoder(JournalWriterInfo(run=1, version="9.1.0", format=FORMAT + 1))

    with pytest.raises(JournalUnreadable, match=r"written by ElasticDL 9\.1\.0, in format 3; this version reads"):
        read(encoder.begin_stream() + encoder.encode_records([b"[1]"]))


def test_a_journal_of_the_format_before_is_recognised() -> None:
    record = b'[1.5,"MasterStarted",[7]]'
    old = len(record).to_bytes(4, "little") + zlib.crc32(record).to_bytes(4, "little") + record

    with pytest.raises(JournalUnreadable, match=r"an earlier version of ElasticDL, in format 1.* with --resume"):
        read(2 * old)


def test_a_file_that_ends_in_its_beginning_is_damaged() -> None:
    """It is written atomically, by a rename, so it cannot be torn."""
    beginning, _ = stream_of([])
    for size in range(len(beginning)):
        with pytest.raises(JournalDamaged, match=f"damaged at byte {len(MAGIC) if size >= len(MAGIC) else 0}:"):
            read(beginning[:size])


def test_another_file_is_no_journal() -> None:
    with pytest.raises(JournalDamaged, match="damaged at byte 0: it does not begin like a journal"):
        read(b"something else")


@pytest.mark.parametrize(("version", "is_newer"), [("0.0.1", False), ("99.0", True), ("99.0rc1", True), ("", False)])
def test_which_versions_are_newer(version: str, is_newer: bool) -> None:
    assert JournalWriterInfo(1, version).is_newer == is_newer
