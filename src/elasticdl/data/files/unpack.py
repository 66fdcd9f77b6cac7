"""Unpacks compressed files once, because they cannot be read by position."""

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

from elasticdl import atomic
from elasticdl.data.files.stored_file import BLOCK_BYTES, TRANSIENT_ERRNOS, StoredFile, find_file
from elasticdl.data.interface import ProgressCallback
from elasticdl.errors import DataError
from elasticdl.extras import check_module

MAX_UNPACKED_BYTES = 100 << 30
_MIN_FREE_SHARE = 0.02  # of the disk: a full one harms all users of the machine


def _zstd(packed: IO[bytes]) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")


_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda packed: gzip.GzipFile(fileobj=packed),
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
    ".zst": _zstd,
}


def uncompressed_name(path: str) -> str:
    """Returns `path` without the extension of a compression that can be unpacked."""
    return path[: -len(_compression_suffix(path))] if is_compressed(path) else path


def is_compressed(path: str) -> bool:
    return _compression_suffix(path) in _OPENERS


def unpack_file(
    file: StoredFile,
    directory: Path | None,
    max_bytes: int = MAX_UNPACKED_BYTES,
    progress: ProgressCallback | None = None,
) -> StoredFile:
    """Returns `file` itself, or its unpacked content in `directory`, which keeps the name in messages.

    Without a directory the content is in a temporary one, which is removed when the program ends.
    """
    if not is_compressed(file.path):
        return file
    if _compression_suffix(file.path) == ".zst":
        check_module(f"{file.path}: Zstandard", "pyarrow")
    identity = "\n".join([file.path, str(file.size), file.version])
    name = hashlib.sha256(identity.encode()).hexdigest()[:32] + ".unpacked"
    target_directory = directory or Path(tempfile.mkdtemp(prefix="elasticdl-unpacked-"))
    target = target_directory / name
    if not target.exists():
        try:
            target_directory.mkdir(parents=True, exist_ok=True)
            file.read_with_retry(lambda: _unpack(file, target, max_bytes, progress))
        except BaseException:
            if directory is None:
                shutil.rmtree(target_directory, ignore_errors=True)
            raise
    if target.stat().st_size == 0:
        raise DataError(f"{file.path}: there is nothing in it (0 bytes unpacked); leave it out of the data path")
    unpacked = find_file(str(target))
    if directory is None:
        atexit.register(shutil.rmtree, target_directory, ignore_errors=True)
    return replace(unpacked, path=file.path, location=str(target))


def _unpack(file: StoredFile, target: Path, max_bytes: int, progress: ProgressCallback | None) -> None:
    try:
        with (
            atomic.open_file(target, mode=atomic.PRIVATE_MODE, sync=True) as out,
            file.open() as packed,
            _OPENERS[_compression_suffix(file.path)](packed) as content,
        ):
            _copy(file, packed, content, out, target.parent, max_bytes, progress)
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as exc:
        raise DataError(
            f"{file.path}: truncated, or no {_compression_suffix(file.path)} file: {exc}; copy it again"
        ) from exc
    except OSError as exc:
        if exc.errno in TRANSIENT_ERRNOS:
            raise
        raise DataError(f"{file.path}: cannot be unpacked into {target.parent}: {exc}") from exc


def _copy(
    file: StoredFile,
    packed: IO[bytes],
    content: Any,
    out: IO[bytes],
    directory: Path,
    max_bytes: int,
    progress: ProgressCallback | None,
) -> None:
    done = 0
    while block := content.read(BLOCK_BYTES):
        done += len(block)
        disk = shutil.disk_usage(directory)
        if done > max_bytes:
            raise DataError(
                f"{file.path}: more than {max_bytes} bytes unpacked; raise data.unpack_limit (--unpack_limit), or "
                f"unpack it yourself to where there is space"
            )
        if disk.free - len(block) < disk.total * _MIN_FREE_SHARE:
            raise DataError(
                f"{file.path}: no space in {directory} to unpack it: {disk.free} bytes are free after {done}; free "
                f"some, or unpack it yourself to where there is space"
            )
        out.write(block)
        if progress is not None:
            progress(min(packed.tell(), file.size), file.size)


def _compression_suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()
