"""The byte offset of each record of a file: found in one scan, stored with a checksum, memory-mapped."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path

import google_crc32c
import numpy as np

from elasticdl import atomic
from elasticdl.data.files.stored_file import BLOCK_BYTES, TRANSIENT_ERRNOS, StoredFile
from elasticdl.data.interface import Indices
from elasticdl.errors import DataError

_log = logging.getLogger(__name__)

_VERSION = 2  # part of every index's name; raise it when scans find other records than before


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """Byte offsets: record i is in bytes [offsets[i], offsets[i + 1]) of its file."""

    records: int
    load: Callable[[], Indices]

    def byte_ranges(self, indices: Indices) -> tuple[Indices, Indices]:
        """Returns the first and past-the-last byte of each record."""
        offsets = self.load()
        return np.asarray(offsets[indices]), np.asarray(offsets[indices + 1])


def read_record_bytes(file: StoredFile, index: OffsetIndex, records: Indices) -> tuple[bytes, Indices, Indices]:
    """Reads sorted, distinct records. Returns their bytes joined, the start of each in them, and its size.

    Neighbouring records are read together.
    """
    starts, stops = index.byte_ranges(records)
    breaks = np.flatnonzero(np.diff(records) != 1)
    firsts, lasts = np.r_[0, breaks + 1], np.r_[breaks, len(records) - 1]
    sizes = stops - starts
    return b"".join(file.read_ranges(starts[firsts], stops[lasts])), np.cumsum(sizes) - sizes, sizes


def load_or_build_index(
    file: StoredFile, kind: str, scan: Callable[[], Iterable[Indices]], directory: Path | None
) -> OffsetIndex:
    """Loads the index of `file` from `directory`, or builds it by `scan` and stores it there.

    `scan` yields the offsets of records, in order. `kind` names everything that a scan depends on besides the file.
    Without a directory the index stays in memory, eight bytes per record.
    """
    if directory is None:
        offsets = np.concatenate([*scan(), _end_offset(file)])
        return OffsetIndex(len(offsets) - 1, lambda: offsets)
    path = directory / f"{_index_name(file, kind)}.{kind}.i64"
    digest = path.with_suffix(".digest")
    if not file.read_with_retry(lambda: _is_intact(path, file)):
        file.read_with_retry(lambda: _build(path, digest, file, scan))
        _map_index.cache_clear()  # it may have a mapping of the earlier file
    if not file.content.digest and digest.exists():
        file.content.digest = file.read_with_retry(digest.read_text)
    return OffsetIndex(path.stat().st_size // 8 - 2, lambda: file.read_with_retry(partial(_map_index, path)))


# A mapping takes a descriptor, and there may be thousands of files, so only the latest stay mapped.
@lru_cache(maxsize=16)
def _map_index(path: Path) -> Indices:
    return np.memmap(path, dtype="<i8", mode="r")


def _index_name(file: StoredFile, kind: str) -> str:
    identity = "\n".join([str(_VERSION), kind, file.path, str(file.size), file.version])
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def _is_intact(path: Path, file: StoredFile) -> bool:
    try:
        with path.open("rb") as stored:
            size = os.fstat(stored.fileno()).st_size
            if size < 16 or size % 8:
                return False
            checksum, left = 0, size - 8
            while left:
                block = stored.read(min(left, BLOCK_BYTES))
                checksum, left = google_crc32c.extend(checksum, block), left - len(block)
            is_intact = stored.read() == _encode_number(checksum) and block.endswith(_encode_number(file.size))
    except FileNotFoundError:
        return False
    except OSError as exc:
        if exc.errno in TRANSIENT_ERRNOS:
            raise
        return False
    if not is_intact:
        _log.warning("%s: its index in %s is damaged and is built again", file.path, path)
    return is_intact


def _build(path: Path, digest: Path, file: StoredFile, scan: Callable[[], Iterable[Indices]]) -> None:
    """Writes the index, and the digest of the content if the scan has read all of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.open_file(path, mode=atomic.PRIVATE_MODE) as out:
            checksum = 0
            for offsets in chain(scan(), [_end_offset(file)]):
                block = offsets.astype("<i8").tobytes()
                checksum = google_crc32c.extend(checksum, block)
                out.write(block)
            out.write(_encode_number(checksum))
        if file.content.digest:
            atomic.write_file(digest, file.content.digest, mode=atomic.PRIVATE_MODE)
    except OSError as exc:
        if exc.errno in TRANSIENT_ERRNOS:
            raise
        raise DataError(f"{file.path}: its index cannot be written to {path.parent}: {exc}") from exc


def _encode_number(value: int) -> bytes:
    return np.array([value], dtype="<i8").tobytes()


def _end_offset(file: StoredFile) -> Indices:
    return np.array([file.size], dtype="<i8")
