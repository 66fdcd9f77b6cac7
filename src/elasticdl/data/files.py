"""One stored file, read by position. fsspec finds it; a local one is read with pread.

Requests to an object store are tried again while it does not answer, for `data.retry_s` seconds each.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, TypeVar

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem

from elasticdl.data.interface import Indices, Progress
from elasticdl.errors import DataError, DataUnavailable, SpecError, StoreUnavailable
from elasticdl.storage import schemes
from elasticdl.storage.retrying import RETRY_S, retry

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK_BYTES = 4 << 20
_GAP_BYTES = 64 << 10  # ranges of a store so near to each other are one request: it costs more than these bytes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it was when it was found. Read after a change, it is an error and never a mixture of two files.

    It holds no descriptor: a source of ten thousand files needs no more of them than a source of one.
    """

    path: str  # as messages call it
    size: int
    version: str  # changes with the content, as far as the file system tells
    filesystem: Any
    location: str = ""  # where its bytes lie, if not at `path`
    retry_s: float = RETRY_S  # of a store

    @property
    def is_local(self) -> bool:
        return isinstance(self.filesystem, LocalFileSystem)

    @property
    def stored_at(self) -> str:
        return self.location or self.path

    def read_ranges(self, starts: Indices, stops: Indices) -> list[bytes]:
        """The bytes [start, stop) for each pair."""
        lengths = (stops - starts).tolist()
        if self.is_local:
            with self.open() as file:
                descriptor, pread = file.fileno(), os.pread  # called for each record of a shuffled batch
                chunks = [pread(descriptor, n, at) for at, n in zip(starts.tolist(), lengths, strict=True)]
        else:
            self._refuse_change(self._ask(lambda: _version(self.filesystem, self.stored_at)))
            chunks = self._read_merged(starts, stops)
        if list(map(len, chunks)) == lengths:
            return chunks
        found = zip(chunks, starts.tolist(), lengths, strict=True)
        chunk, at, length = next(entry for entry in found if len(entry[0]) != entry[2])
        raise DataError(f"{self.path}, byte {at}: expected {length} bytes, got {len(chunk)}; {_CHANGED}")

    def open(self) -> IO[bytes]:
        """The file for reading from its start, unbuffered where it is local."""
        try:
            if self.is_local:
                file: IO[bytes] = open(self.stored_at, "rb", buffering=0)  # noqa: SIM115
                stat = os.fstat(file.fileno())
                found = (stat.st_size, str(stat.st_mtime_ns))
            else:
                found = self._ask(lambda: _version(self.filesystem, self.stored_at))
                file = self._open_remote()
        except OSError as exc:
            raise DataError(f"{self.path}: cannot be read any more: {exc}") from exc
        try:
            self._refuse_change(found)
        except DataError:
            file.close()
            raise
        return file

    def blocks(self, block_bytes: int = BLOCK_BYTES, progress: Progress | None = None) -> Iterator[bytes]:
        """The whole file, a block at a time; `progress` is told of each once it was taken."""
        done = 0
        with self.open() as file:
            while block := file.read(block_bytes):
                yield block
                done += len(block)
                if progress is not None:
                    progress(done, self.size)

    def line_of(self, offset: int) -> int:
        """The line, counted from 1, on which byte `offset` stands. Reads all before it: for messages only."""
        line, position = 1, 0
        for block in self.blocks():
            line += block.count(b"\n", 0, max(0, offset - position))
            position += len(block)
            if position >= offset:
                break
        return line

    def _open_remote(self) -> IO[bytes]:
        if schemes.is_in_store(self.path):
            return io.BufferedReader(_RangeReader(self), BLOCK_BYTES)
        opened: IO[bytes] = self.filesystem.open(self.stored_at, "rb")
        return opened

    def read_range(self, start: int, stop: int) -> bytes:
        """The bytes [start, stop) of a file that is not local."""
        return bytes(self._ask(lambda: self.filesystem.cat_file(self.stored_at, start=start, end=stop)))

    def _read_merged(self, starts: Indices, stops: Indices) -> list[bytes]:
        """The bytes of each range, neighbours in one request."""
        if not len(starts):
            return []
        order = np.argsort(starts, kind="stable")
        ends = np.maximum.accumulate(stops[order])
        is_first = np.r_[True, starts[order][1:] > ends[:-1] + _GAP_BYTES]
        group = np.cumsum(is_first) - 1
        first = starts[order][is_first]
        last = ends[np.r_[np.flatnonzero(is_first)[1:] - 1, len(ends) - 1]]

        def request() -> list[bytes]:
            paths = [self.stored_at] * len(first)
            found = self.filesystem.cat_ranges(paths, first.tolist(), last.tolist(), on_error="raise")
            return [bytes(chunk) for chunk in found]

        merged = self._ask(request)
        chunks = [b""] * len(starts)
        for at, owner in zip(order.tolist(), group.tolist(), strict=True):
            offset = int(first[owner])
            chunks[at] = merged[owner][int(starts[at]) - offset : int(stops[at]) - offset]
        return chunks

    def _ask(self, request: Callable[[], T]) -> T:
        return ask(self.path, request, self.retry_s)

    def _refuse_change(self, found: tuple[int, str]) -> None:
        if found != (self.size, self.version):
            raise DataError(f"{self.path}: {_CHANGED} (then {self.size} bytes, now {found[0]})")


_CHANGED = "the file changed while the job was using it; start the job again and leave its data alone meanwhile"


class _RangeReader(io.RawIOBase):
    """A file of a store as a stream: each read is a request of its own, so that one that fails can be repeated."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        stop = min(self._position + len(view), self._file.size)
        if stop <= self._position:
            return 0
        content = self._file.read_range(self._position, stop)
        view[: len(content)] = content
        self._position += len(content)
        return len(content)


def find(path: str, retry_s: float = RETRY_S) -> StoredFile:
    """The file at `path`; DataError where there is none, or nothing in it. `retry_s` is for files of a store."""
    filesystem, stripped = filesystem_of(path)
    is_in_store = schemes.is_in_store(path)
    try:
        size, version = ask(path, lambda: _version(filesystem, stripped), retry_s)
    except FileNotFoundError as exc:
        hint = (
            "check the bucket and the key" if is_in_store else f"check the path (relative ones start at {os.getcwd()})"
        )
        raise DataError(f"{path}: no such file; {hint}") from exc
    except OSError as exc:
        raise DataError(f"{path}: cannot be read: {exc}") from exc
    if size == 0:
        raise DataError(f"{path}: the file is empty (0 bytes); remove it or leave it out of the data path")
    if is_in_store:
        return StoredFile(path, size, version, filesystem, stripped, retry_s)
    return StoredFile(stripped, size, version, filesystem)


def filesystem_of(path: str) -> tuple[Any, str]:
    """The file system of a path and the path as that file system spells it."""
    try:
        if schemes.is_in_store(path):
            return schemes.open_filesystem(schemes.scheme_of(path)), path.partition("://")[2].rstrip("/")
        filesystem, stripped = fsspec.core.url_to_fs(path)
    except SpecError as exc:
        raise DataError(f"{path}: {exc}") from exc
    except (ImportError, ValueError) as exc:
        known = ", ".join(f"{name}://" for name in (*schemes.SCHEMES, schemes.LOCAL))
        raise DataError(f"{path}: no file system for this address: {exc}; object stores are read by {known}") from exc
    return filesystem, str(stripped)


def ask(path: str, request: Callable[[], T], retry_s: float = RETRY_S) -> T:
    """What `request` returns; tried again where `path` is in a store that does not answer, then DataUnavailable."""
    if not schemes.is_in_store(path):
        return request()
    try:
        return retry(request, path, schemes.scheme_of(path), retry_s)
    except StoreUnavailable as exc:
        raise DataUnavailable(
            f"{exc}; see to it, then go on from the newest checkpoint, or wait longer with data.retry_s "
            "(--data_retry_s)"
        ) from exc
    except SpecError as exc:
        raise DataError(str(exc)) from exc


def _version(filesystem: Any, path: str) -> tuple[int, str]:
    if isinstance(filesystem, LocalFileSystem):
        stat = os.stat(path)
        return stat.st_size, str(stat.st_mtime_ns)
    info = filesystem.info(path)
    # What a store calls the content of an object; other file systems have a key of their own.
    tags = (info.get(name) for name in ("ETag", "etag", "generation"))
    return int(info["size"] or 0), next((str(tag) for tag in tags if tag), "") or str(filesystem.ukey(path))
