"""Where each record of a file begins: found in one scan, kept as a file of little-endian int64, memory-mapped.

The index of a file is named by its path, size and time of change, so one of an older content is never
found. It appears whole (written beside, then renamed): several workers may build it at once, harmlessly.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from elasticdl import replacement
from elasticdl.data.files import StoredFile
from elasticdl.data.interface import Indices
from elasticdl.errors import DataError

_VERSION = 1  # part of every index's name: raise it when scanning finds other records than before


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """Record i lies in bytes [offsets[i], offsets[i + 1]) of its file."""

    records: int
    load: Callable[[], Indices]

    def ranges(self, indices: Indices) -> tuple[Indices, Indices]:
        """First and past-the-last byte of each record."""
        offsets = self.load()
        return np.asarray(offsets[indices]), np.asarray(offsets[indices + 1])


def read_neighbours(file: StoredFile, index: OffsetIndex, records: Indices) -> tuple[bytes, Indices, Indices]:
    """The bytes of `records`, sorted and distinct, one after the other; where each begins in them, and its size.

    Neighbours are read together.
    """
    starts, stops = index.ranges(records)
    breaks = np.flatnonzero(np.diff(records) != 1)
    firsts, lasts = np.r_[0, breaks + 1], np.r_[breaks, len(records) - 1]
    sizes = stops - starts
    return b"".join(file.read_ranges(starts[firsts], stops[lasts])), np.cumsum(sizes) - sizes, sizes


def offset_index(
    file: StoredFile, kind: str, scan: Callable[[], Iterable[Indices]], directory: Path | None
) -> OffsetIndex:
    """The index of `file`: the one in `directory` if it is there, else what `scan` finds, kept there.

    `scan` gives the first bytes of records, in order. `kind` is all that a scan depends on beside the file.
    Without a directory the index is kept in memory, eight bytes a record.
    """
    if directory is None:
        offsets = np.concatenate([*scan(), _end(file)])
        return OffsetIndex(len(offsets) - 1, lambda: offsets)
    path = directory / f"{_key(file, kind)}.{kind}.i64"
    if not _is_whole(path, file):
        _build(path, file, scan)
    return OffsetIndex(path.stat().st_size // 8 - 1, partial(_mapped, path))


# A mapping holds a descriptor, and there may be thousands of files: only those read last stay mapped.
@lru_cache(maxsize=16)
def _mapped(path: Path) -> Indices:
    return np.memmap(path, dtype="<i8", mode="r")


def _key(file: StoredFile, kind: str) -> str:
    identity = "\n".join([str(_VERSION), kind, file.path, str(file.size), file.version])
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def _is_whole(path: Path, file: StoredFile) -> bool:
    # A power cut may leave a renamed file without its bytes: the last offset is always the file's size.
    try:
        with path.open("rb") as stored:
            stored.seek(-8, os.SEEK_END)
            return stored.tell() % 8 == 0 and stored.read() == _end(file).tobytes()
    except OSError:
        return False


def _build(path: Path, file: StoredFile, scan: Callable[[], Iterable[Indices]]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacement.of(path, mode=replacement.PRIVATE) as out:
            for starts in scan():
                out.write(starts.astype("<i8").data)
            out.write(_end(file).data)
    except OSError as exc:
        raise DataError(f"{file.path}: its index cannot be written to {path.parent}: {exc}") from exc


def _end(file: StoredFile) -> Indices:
    return np.array([file.size], dtype="<i8")
