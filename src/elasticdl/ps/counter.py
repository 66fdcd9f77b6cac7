"""How many pushes a ps has acknowledged, in a mapped file that outlives it, however it ends."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

_LAYOUT = struct.Struct("<QQ")


class Count(NamedTuple):
    applied: int  # pushes
    clock: int


class Counter:
    """A page of memory that belongs to the file: what was written is there, also after SIGKILL."""

    def __init__(self, path: Path) -> None:
        with path.open("wb+") as file:
            file.write(_LAYOUT.pack(0, 0))
            file.flush()
            self._page = mmap.mmap(file.fileno(), _LAYOUT.size)

    def set(self, applied: int, clock: int) -> None:
        _LAYOUT.pack_into(self._page, 0, applied, clock)


def read(path: Path) -> Count:
    """What a ps had counted last. Raises OSError or struct.error where there is no such file."""
    return Count(*_LAYOUT.unpack(path.read_bytes()))
