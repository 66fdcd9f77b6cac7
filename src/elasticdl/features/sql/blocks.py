"""CSV files as blocks of bytes, to the native counter."""

from __future__ import annotations

import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from typing import IO

import numpy as np
from numpy.typing import NDArray

from elasticdl.data import files
from elasticdl.errors import DataError
from elasticdl.features.sql import _counter, stream
from elasticdl.features.sql.files import CsvFiles, decompressed

_BLOCK_BYTES = 4 << 20
_ALL = 1 << 62
_MARK = b"\xef\xbb\xbf"  # of Unicode, before the first letter


def is_simple(source: CsvFiles) -> bool:
    """Whether the counter can split it: by one byte, and folders with values that are written as they are."""
    for folders in map(_folders, source.paths):
        if len(dict(folders)) < len(folders) or any("%" in value or value[:2] == "__" for _, value in folders):
            return False
    return len(source.delimiter.encode()) == 1 and source.delimiter not in '"\r\n\0'


def count(counter: _counter.Counter, source: CsvFiles, most_rows: int | None, told: Callable[[float], None]) -> None:
    """All rows, or the first ones. Irregular where it is not plain CSV, DataError where it cannot be read."""
    most = _ALL if most_rows is None else most_rows
    total = sum(files.find(path).size for path in source.paths) or 1
    added = [counter.add_column() for _ in stream.partitions(source.paths)]
    block = np.empty(_BLOCK_BYTES + _counter.PADDING, np.uint8)
    before = 0
    for path in source.paths:
        start = counter.rows
        try:
            with files.find(path).open() as raw, decompressed(path, raw) as text:
                for _ in _counted(counter, text, block, source.has_header, most):
                    told((before + raw.tell()) / total)
        except (lzma.LZMAError, zlib.error, EOFError, OSError) as exc:
            raise DataError(f"{path}: {exc}") from exc
        for column, (_, value) in zip(added, _folders(path), strict=True):
            counter.add(column, value, counter.rows - start)
        before += files.find(path).size


def _counted(
    counter: _counter.Counter, text: IO[bytes], block: NDArray[np.uint8], has_header: bool, most: int
) -> Iterator[None]:
    """Of one file, until there are `most` rows; yields after each block."""
    view = block.data
    line = text.readline(_BLOCK_BYTES) if has_header else b""
    if line.count(b'"') % 2:
        raise _counter.Irregular("a header of several lines")
    kept = 0 if has_header else _without_mark(text, view)
    is_last = False
    while not is_last and counter.rows < most:
        end = kept + _filled(text, view[kept : _BLOCK_BYTES - 2])
        is_last = end < _BLOCK_BYTES - 2
        if is_last and end and view[end - 1] != ord("\n"):
            ending = b"\r\n" if counter.has_crlf or line.endswith(b"\r\n") else b"\n"
            view[end : end + len(ending)] = ending
            end += len(ending)
        following = counter.count(block, 0, end, most - counter.rows)
        kept = end - following
        view[:kept] = view[following:end]
        yield
    if kept and counter.rows < most:
        raise _counter.Irregular("a quote that is not closed")
    if counter.rows and line and line.endswith(b"\r\n") != counter.has_crlf:
        raise _counter.Irregular("lines end in two ways")


def _filled(text: IO[bytes], room: memoryview) -> int:
    """How many bytes were read: fewer than there is room for only at the end."""
    done = 0
    while done < len(room):
        got = text.readinto(room[done:])  # type: ignore[attr-defined]
        if not got:
            break
        done += got
    return done


def _without_mark(text: IO[bytes], view: memoryview) -> int:
    """The first bytes, unless they are the mark of Unicode."""
    found = _filled(text, view[: len(_MARK)])
    return 0 if bytes(view[:found]) == _MARK else found


def _folders(path: str) -> list[tuple[str, str]]:
    return re.findall(r"([^/=]+)=([^/]*)/", path)
