"""Compressed files, which cannot be read by position: unpacked once, to a file that can.

The unpacked file lies beside the indexes, named by path, size and time of change of the packed one. It appears whole
(written beside, then renamed), so several workers may unpack at once, harmlessly.
"""

from __future__ import annotations

import atexit
import bz2
import gzip
import hashlib
import lzma
import shutil
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from elasticdl import replacement
from elasticdl.data.content import BLOCK_BYTES
from elasticdl.data.files import PASSING, StoredFile, find
from elasticdl.data.interface import Progress
from elasticdl.errors import DataError

UNPACK_BYTES = 100 << 30
_LEFT_FREE = 0.02  # of the disk: a full one harms everybody on the machine


def _zstd(packed: IO[bytes]) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")


_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda packed: gzip.GzipFile(fileobj=packed),
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
    ".zst": _zstd,
}


def inner_name(path: str) -> str:
    """`path` without the extension of a compression that can be unpacked."""
    return path[: -len(_packing(path))] if is_packed(path) else path


def is_packed(path: str) -> bool:
    return _packing(path) in _OPENERS


def unpacked(
    file: StoredFile, directory: Path | None, max_bytes: int = UNPACK_BYTES, progress: Progress | None = None
) -> StoredFile:
    """`file` itself, or what is in it, stored in `directory`. It keeps its name for messages.

    Without a directory it lies in a temporary one, which goes when the program ends.
    """
    if not is_packed(file.path):
        return file
    identity = "\n".join([file.path, str(file.size), file.version])
    name = hashlib.sha256(identity.encode()).hexdigest()[:32] + ".unpacked"
    place = directory or Path(tempfile.mkdtemp(prefix="elasticdl-unpacked-"))
    target = place / name
    if not target.exists():
        try:
            place.mkdir(parents=True, exist_ok=True)
            file.ask(lambda: _unpack(file, target, max_bytes, progress))
        except BaseException:
            if directory is None:
                shutil.rmtree(place, ignore_errors=True)
            raise
    if target.stat().st_size == 0:
        raise DataError(f"{file.path}: there is nothing in it (0 bytes unpacked); leave it out of the data path")
    found = find(str(target))
    if directory is None:
        atexit.register(shutil.rmtree, place, ignore_errors=True)
    return replace(found, path=file.path, location=str(target))


def _unpack(file: StoredFile, target: Path, max_bytes: int, progress: Progress | None) -> None:
    try:
        with (
            replacement.of(target, mode=replacement.PRIVATE, sync=True) as out,
            file.open() as packed,
            _OPENERS[_packing(file.path)](packed) as content,
        ):
            _copy(file, packed, content, out, target.parent, max_bytes, progress)
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as exc:
        raise DataError(f"{file.path}: truncated, or no {_packing(file.path)} file: {exc}; copy it anew") from exc
    except OSError as exc:
        if exc.errno in PASSING:
            raise
        raise DataError(f"{file.path}: cannot be unpacked into {target.parent}: {exc}") from exc


def _copy(
    file: StoredFile, packed: IO[bytes], content: Any, out: IO[bytes], place: Path, most: int, progress: Progress | None
) -> None:
    done = 0
    while block := content.read(BLOCK_BYTES):
        done += len(block)
        disk = shutil.disk_usage(place)
        if done > most:
            raise DataError(
                f"{file.path}: more than {most} bytes unpacked; raise data.unpack_limit (--unpack_limit), or unpack it "
                f"yourself to where there is room"
            )
        if disk.free - len(block) < disk.total * _LEFT_FREE:
            raise DataError(
                f"{file.path}: no room in {place} to unpack it: {disk.free} bytes are free after {done}; make room, or "
                f"unpack it yourself to where there is some"
            )
        out.write(block)
        if progress is not None:
            progress(min(packed.tell(), file.size), file.size)


def _packing(path: str) -> str:
    return PurePosixPath(path).suffix.lower()
