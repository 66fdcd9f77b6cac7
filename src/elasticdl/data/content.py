"""What is known of a local file's content, so that a touch is told from a change.

The time of change tells at no cost that a file may be another one. Where it differs and the size does not, the content
is compared with its digest: of the whole file where opening it has read all of it anyway (CSV, JSON lines), else of a
sample from all over it.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

import google_crc32c

BLOCK_BYTES = 4 << 20
_PIECE_BYTES = 64 << 10
_PIECES = 16  # of a sample
_WHOLE, _SAMPLE = "whole", "sample"


@dataclass(slots=True)
class Content:
    """Shared by all who read the file in this process."""

    digest: str = ""  # "": not known, then every touch counts as a change
    _same: set[str] = field(default_factory=set)  # times of change with this content
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_at(self, descriptor: int, size: int, version: str) -> bool:
        """Whether the open file of this size and time of change still holds what it did."""
        if not self.digest:
            return False
        with self._lock:
            if version not in self._same and digest_of(descriptor, size, self.digest) == self.digest:
                self._same.add(version)
            return version in self._same


def digest_of(descriptor: int, size: int, like: str = "") -> str:
    """Of an open file, computed as `like` was; by default of a sample."""
    if like.startswith(_WHOLE):
        ranges = [(start, BLOCK_BYTES) for start in range(0, size, BLOCK_BYTES)]
    elif size <= _PIECES * _PIECE_BYTES:
        ranges = [(0, size)]
    else:
        last = size - _PIECE_BYTES
        ranges = [(last * number // (_PIECES - 1), _PIECE_BYTES) for number in range(_PIECES)]
    checksum = Checksum()
    for start, length in ranges:
        checksum.update(os.pread(descriptor, length, start))
    return checksum.whole() if like.startswith(_WHOLE) else checksum.sample()


class Checksum:
    """Built up block by block."""

    def __init__(self) -> None:
        self._crc = 0
        self._bytes = 0

    def update(self, block: bytes) -> None:
        self._crc = google_crc32c.extend(self._crc, block)
        self._bytes += len(block)

    def whole(self) -> str:
        return f"{_WHOLE}:{self._bytes}:{self._crc:08x}"

    def sample(self) -> str:
        return f"{_SAMPLE}:{self._bytes}:{self._crc:08x}"
