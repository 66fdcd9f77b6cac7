"""The bytes of a journal, in a file or in ConfigMaps: records in frames that distinguish damage from a torn end.

    stream    MAGIC, then frames: the first one describes the writer, all others hold the records of one write
    frame     mark (4 bytes), length, CRC-32 of the content, CRC-32 of these three; then the content
    content   of a writer: JSON; of a write: each record after its length

The last checksum continues that of the previous frame, so no frame can be missing, duplicated or out of order. It
covers the length: a frame that reaches beyond the end was torn there, rather than damaged in its length. Each write is
on disk before the next begins, so only the last frame can be torn, and nothing was done yet because of it. Everything
else is damage.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from elasticdl import __version__
from elasticdl.errors import JournalDamaged, JournalUnreadable

MAGIC = b"EDLJRNL\n"
FORMAT = 2
SECTOR_BYTES = 512  # a disk writes a sector completely or not at all
_WRITER, _RECORDS = b"EDLW", b"EDLR"
_HEAD = struct.Struct("<4sII")
_CHECK = struct.Struct("<I")
_LENGTH = struct.Struct("<I")
_FORMAT_1 = struct.Struct("<II")  # began with the length and the checksum of its first record
_HEAD_BYTES = _HEAD.size + _CHECK.size
_FIRST_CHAIN = zlib.crc32(MAGIC)


@dataclass(frozen=True, slots=True)
class JournalWriterInfo:
    """The writer of the following frames."""

    run: int  # of the job
    version: str = __version__  # of ElasticDL
    format: int = FORMAT

    @property
    def is_newer(self) -> bool:
        """Whether its version is later than ours."""
        return _version_key(self.version) > _version_key(__version__)


class FrameEncoder:
    """Encodes one stream, frame by frame."""

    def __init__(self, writer: JournalWriterInfo, chain: int = _FIRST_CHAIN) -> None:
        self._writer = writer
        self._chain = chain

    def begin_stream(self) -> bytes:
        """The beginning of a new stream, with its writer."""
        self._chain = _FIRST_CHAIN
        return MAGIC + self.encode_writer()

    def encode_writer(self) -> bytes:
        """A frame with the writer of the following frames."""
        return self._frame(_WRITER, json.dumps(asdict(self._writer)).encode())

    def encode_records(self, records: list[bytes]) -> bytes:
        """A frame with the records of one write."""
        return self._frame(_RECORDS, b"".join([_LENGTH.pack(len(record)) + record for record in records]))

    def _frame(self, mark: bytes, content: bytes) -> bytes:
        head = _HEAD.pack(mark, len(content), zlib.crc32(content))
        self._chain = zlib.crc32(head, self._chain)
        return head + _CHECK.pack(self._chain) + content


class FrameDecoder:
    """Reads one stream of `size` bytes. Raises JournalDamaged with the byte, or JournalUnreadable with the writer.

    After `read_records` has ended, `offset` is where the next frame belongs, and `torn_bytes` counts what is behind it.
    """

    def __init__(self, read: Callable[[int], bytes], size: int, *, can_be_torn: bool) -> None:
        self._read = read
        self._size = size
        self._can_be_torn = can_be_torn
        self._chain = _FIRST_CHAIN
        self.offset = 0
        self.torn_bytes = 0
        self.writer: JournalWriterInfo | None = None

    def read_records(self) -> Iterator[bytes]:
        """All records, the oldest first."""
        for content in self._contents():
            yield from _split_records(content, self.offset)

    def continue_writing(self, writer: JournalWriterInfo) -> FrameEncoder:
        """An encoder that continues this stream."""
        return FrameEncoder(writer, self._chain)

    def _contents(self) -> Iterator[bytes]:
        self._begin()
        while self.offset < self._size:
            head = self._read(_HEAD_BYTES)
            if len(head) < _HEAD_BYTES:
                self._tear("the head of a frame is incomplete")
                return
            mark, length, checksum = _HEAD.unpack_from(head)
            chain = zlib.crc32(head[: _HEAD.size], self._chain)
            if chain != _CHECK.unpack_from(head, _HEAD.size)[0]:
                # A file may have its full length although its last blocks were never written: they are zero.
                if any(head) or any(any(piece) for piece in iter(lambda: self._read(1 << 20), b"")):
                    raise JournalDamaged(self.offset, "a frame has a wrong head")
                self._tear("the last blocks were never written")
                return
            if length > self._size - self.offset - _HEAD_BYTES:
                self._tear("the last frame is incomplete")
                return
            content = self._read(length)
            if zlib.crc32(content) != checksum:
                is_last = self.offset + _HEAD_BYTES + length == self._size
                if not (is_last and _has_zero_sector(head + content, self.offset)):
                    raise JournalDamaged(self.offset, "a record has a wrong checksum")
                self._tear("a block of the last frame was never written")
                return
            if mark == _WRITER:
                self.writer = self._parse_writer(content)
            elif mark == _RECORDS and self.writer is not None:
                yield content
            else:
                raise JournalDamaged(self.offset, f"a frame has the mark {mark!r}")
            self.offset, self._chain = self.offset + _HEAD_BYTES + length, chain
        if self.writer is None:
            raise JournalDamaged(self.offset, "everything after its first bytes is missing")

    def _begin(self) -> None:
        magic = self._read(len(MAGIC))
        if magic != MAGIC:
            if len(magic) == len(MAGIC) and self._is_format_1(magic):
                raise JournalUnreadable("an earlier version of ElasticDL, in format 1")
            raise JournalDamaged(0, "it does not begin like a journal")
        self.offset = len(MAGIC)

    def _is_format_1(self, head: bytes) -> bool:
        length, checksum = _FORMAT_1.unpack(head)
        return bool(length <= self._size - len(head) and zlib.crc32(self._read(length)) == checksum)

    def _parse_writer(self, content: bytes) -> JournalWriterInfo:
        try:
            fields = json.loads(content)
            number, version = int(fields["format"]), str(fields["version"])
            if number == FORMAT:
                return JournalWriterInfo(run=int(fields["run"]), version=version)
        except (ValueError, TypeError, KeyError) as exc:
            raise JournalDamaged(self.offset, f"its writer cannot be read: {exc!r}") from exc
        raise JournalUnreadable(f"ElasticDL {version}, in format {number}; this version reads format {FORMAT}")

    def _tear(self, reason: str) -> None:
        if not self._can_be_torn or self.writer is None:  # the beginning is written atomically, by a rename
            raise JournalDamaged(self.offset, reason)
        self.torn_bytes = self._size - self.offset


def salvage_records(content: bytes) -> Iterator[bytes]:
    """The readable records in `content`, which begins with a damaged frame; only to report what is lost."""
    position = content.find(_RECORDS, 1)
    while position >= 0:
        end = position + _HEAD_BYTES
        if end <= len(content):
            _, length, checksum = _HEAD.unpack_from(content, position)
            frame = content[end : end + length]
            if len(frame) == length and zlib.crc32(frame) == checksum:
                yield from _split_records(frame, position)
                end += length
        position = content.find(_RECORDS, max(end, position + 1))


def is_state_record(record: bytes) -> bool:
    """Whether a record holds a state, which is a JSON object, rather than an event, which is an array."""
    return record[:1] == b"{"


def _split_records(content: bytes, position: int) -> Iterator[bytes]:
    """The records in the content of the frame at byte `position`."""
    start = 0
    while start < len(content):
        end = start + _LENGTH.size
        if end <= len(content):
            end += _LENGTH.unpack_from(content, start)[0]
        if end > len(content):
            raise JournalDamaged(position, "a record is longer than its frame")
        yield content[start + _LENGTH.size : end]
        start = end


def _has_zero_sector(frame: bytes, position: int) -> bool:
    """Whether a sector of the frame at byte `position` is all zero: records are JSON, which has no zero bytes."""
    first = SECTOR_BYTES - position % SECTOR_BYTES
    starts = [0, *range(first, len(frame), SECTOR_BYTES)]
    return any(not any(frame[start:stop]) for start, stop in zip(starts, [*starts[1:], len(frame)], strict=True))


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int("".join(filter(str.isdecimal, part)) or 0) for part in version.split("."))
