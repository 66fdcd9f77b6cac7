"""One stored file, local or in an object store, read by position. It must not change while it is used."""

from __future__ import annotations

import errno
import io
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, TypeVar

import fsspec
import google_crc32c
import numpy as np
from fsspec.implementations.local import LocalFileSystem

from elasticdl.data.availability import DataWait, retry_until_available
from elasticdl.data.interface import Indices, ProgressCallback
from elasticdl.errors import DataError, DataUnavailable, FileUnavailable, SpecError, StoreUnavailable
from elasticdl.storage import schemes
from elasticdl.storage.retrying import RETRY_S, retry_request

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


BLOCK_BYTES = 4 << 20
_PIECE_BYTES = 64 << 10
_PIECES = 16  # of a sample
_WHOLE, _SAMPLE = "whole", "sample"


@dataclass(slots=True)
class ContentDigest:
    """Shared by all who read the file in this process."""

    digest: str = ""  # "": not known, then every touch counts as a change
    _same: set[str] = field(default_factory=set)  # times of change with this content
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_unchanged(self, descriptor: int, size: int, version: str) -> bool:
        """Whether the open file of this size and time of change still holds what it did."""
        if not self.digest:
            return False
        with self._lock:
            if version not in self._same and compute_digest(descriptor, size, self.digest) == self.digest:
                self._same.add(version)
            return version in self._same


def compute_digest(descriptor: int, size: int, like: str = "") -> str:
    """Of an open file, computed as `like` was; by default of a sample."""
    if like.startswith(_WHOLE):
        ranges = [(start, BLOCK_BYTES) for start in range(0, size, BLOCK_BYTES)]
    elif size <= _PIECES * _PIECE_BYTES:
        ranges = [(0, size)]
    else:
        last = size - _PIECE_BYTES
        ranges = [(last * number // (_PIECES - 1), _PIECE_BYTES) for number in range(_PIECES)]
    checksum = ContentChecksum()
    for start, length in ranges:
        checksum.update(os.pread(descriptor, length, start))
    return checksum.whole_file_digest() if like.startswith(_WHOLE) else checksum.sample_digest()


class ContentChecksum:
    """Built up block by block."""

    def __init__(self) -> None:
        self._crc = 0
        self._bytes = 0

    def update(self, block: bytes) -> None:
        self._crc = google_crc32c.extend(self._crc, block)
        self._bytes += len(block)

    def whole_file_digest(self) -> str:
        return f"{_WHOLE}:{self._bytes}:{self._crc:08x}"

    def sample_digest(self) -> str:
        return f"{_SAMPLE}:{self._bytes}:{self._crc:08x}"


# What a local file's reader may meet and what may be over in a moment; network file systems are local ones here.
TRANSIENT_ERRNOS = frozenset(
    getattr(errno, name)
    for name in (
        "EIO", "ESTALE", "ENOENT", "EMFILE", "ENFILE", "ETIMEDOUT", "EAGAIN", "ENOMEM", "ENXIO", "ENODEV", "EREMOTEIO",
        "ENOTCONN", "ECONNRESET", "ECONNABORTED", "ECONNREFUSED", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN",
        "ENETUNREACH",
    )
)  # fmt: skip
_GAP_BYTES = 64 << 10  # ranges of a store so near to each other are one request: it costs more than these bytes

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it was when it was found. Read after a change, it is an error and never a mixture of two files.

    A new time of change alone is none, where the content is known to be the same.

    It holds no descriptor: a source of ten thousand files needs no more of them than a source of one.
    """

    path: str  # as messages call it
    size: int
    version: str  # changes with the content, as far as the file system tells
    filesystem: Any
    location: str = ""  # where its bytes lie, if not at `path`
    retry_s: float = RETRY_S
    content: ContentDigest = field(default_factory=ContentDigest, compare=False)  # of a local file

    @property
    def is_local(self) -> bool:
        return isinstance(self.filesystem, LocalFileSystem)

    @property
    def storage_path(self) -> str:
        return self.location or self.path

    def read_ranges(self, starts: Indices, stops: Indices) -> list[bytes]:
        """The bytes [start, stop) for each pair."""
        lengths = (stops - starts).tolist()
        if self.is_local:
            try:
                chunks = self.read_with_retry(lambda: self._read_local(starts.tolist(), lengths))
            except OSError as exc:
                raise self._unreadable(exc) from exc
        else:
            self._refuse_change(*self.read_with_retry(lambda: _version(self.filesystem, self.storage_path)))
            chunks = self._read_merged(starts, stops)
        if list(map(len, chunks)) == lengths:
            return chunks
        found = zip(chunks, starts.tolist(), lengths, strict=True)
        chunk, at, length = next(entry for entry in found if len(entry[0]) != entry[2])
        raise DataError(f"{self.path}, byte {at}: expected {length} bytes, got {len(chunk)}; {_CHANGED_HINT}")

    def open(self) -> IO[bytes]:
        """The file for reading from its start, unbuffered where it is local."""
        try:
            if self.is_local:
                return self.read_with_retry(self._open_local)
            self._refuse_change(*self.read_with_retry(lambda: _version(self.filesystem, self.storage_path)))
            return self._open_remote()
        except OSError as exc:
            raise self._unreadable(exc) from exc

    def read_at(self, start: int, length: int) -> bytes:
        """Up to `length` bytes from `start` on, fewer at the end of the file."""
        stop = min(start + length, self.size)
        if stop <= start:
            return b""
        if not self.is_local:
            return self.read_range(start, stop)
        return self.read_ranges(np.array([start]), np.array([stop]))[0]

    def blocks(self, block_bytes: int = BLOCK_BYTES, progress: ProgressCallback | None = None) -> Iterator[bytes]:
        """The whole file, a block at a time; `progress` is told of each once it was taken."""
        checksum = ContentChecksum()
        for start in range(0, self.size, block_bytes):
            block = self.read_at(start, block_bytes)
            checksum.update(block)
            yield block
            if progress is not None:
                progress(start + len(block), self.size)
        if self.is_local:
            self.content.digest = self.content.digest or checksum.whole_file_digest()

    def ensure_digest(self) -> None:
        """Know the content by a sample, where nothing better is known."""
        if self.is_local and not self.content.digest:
            with self.open() as file:
                self.content.digest = self.read_with_retry(lambda: compute_digest(file.fileno(), self.size))

    def line_number(self, offset: int) -> int:
        """The line, counted from 1, on which byte `offset` stands. Reads all before it: for messages only."""
        line, position = 1, 0
        for block in self.blocks():
            line += block.count(b"\n", 0, max(0, offset - position))
            position += len(block)
            if position >= offset:
                break
        return line

    def _open_remote(self) -> IO[bytes]:
        if schemes.is_store_address(self.path):
            return io.BufferedReader(_RangeReader(self), BLOCK_BYTES)
        opened: IO[bytes] = self.filesystem.open(self.storage_path, "rb")
        return opened

    def read_range(self, start: int, stop: int) -> bytes:
        """The bytes [start, stop) of a file that is not local."""
        return bytes(self.read_with_retry(lambda: self.filesystem.cat_file(self.storage_path, start=start, end=stop)))

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
            paths = [self.storage_path] * len(first)
            found = self.filesystem.cat_ranges(paths, first.tolist(), last.tolist(), on_error="raise")
            return [bytes(chunk) for chunk in found]

        merged = self.read_with_retry(request)
        chunks = [b""] * len(starts)
        for at, owner in zip(order.tolist(), group.tolist(), strict=True):
            offset = int(first[owner])
            chunks[at] = merged[owner][int(starts[at]) - offset : int(stops[at]) - offset]
        return chunks

    def read_with_retry(self, request: Callable[[], T]) -> T:
        """What `request`, which reads this file, returns; tried again where that may help."""
        return read_with_retry(self.path, request, self.retry_s)

    def _unreadable(self, exc: OSError) -> DataError:
        return DataError(f"{self.path}: cannot be read any more: {exc}")

    def _open_local(self) -> IO[bytes]:
        file: IO[bytes] = open(self.storage_path, "rb", buffering=0)  # noqa: SIM115 - the caller closes it
        try:
            stat = os.fstat(file.fileno())
            self._refuse_change(stat.st_size, str(stat.st_mtime_ns), file.fileno())
        except BaseException:
            file.close()
            raise
        return file

    def _read_local(self, starts: list[int], lengths: list[int]) -> list[bytes]:
        with self._open_local() as file:
            descriptor, pread = file.fileno(), os.pread  # called for each record of a shuffled batch
            return [pread(descriptor, length, start) for start, length in zip(starts, lengths, strict=True)]

    def _refuse_change(self, size: int, version: str, descriptor: int | None = None) -> None:
        if (size, version) == (self.size, self.version):
            return
        if size == self.size and descriptor is not None and self.content.is_unchanged(descriptor, size, version):
            return
        detail = f"then {self.size} bytes, now {size}" if size != self.size else "the same size, another content"
        raise DataError(f"{self.path}: {_CHANGED_HINT} ({detail})")


_CHANGED_HINT = "the file changed while the job was using it; start the job again and leave its data alone meanwhile"


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


def find_file(path: str, retry_s: float = RETRY_S, missing_s: float = 0.0) -> StoredFile:
    """The file at `path`; DataError where there is none for `missing_s` seconds, or nothing in it."""
    filesystem, stripped = resolve_filesystem(path)
    is_in_store = schemes.is_store_address(path)

    def look() -> tuple[int, str]:
        return read_with_retry(path, lambda: _version(filesystem, stripped), retry_s, TRANSIENT_ERRNOS - {errno.ENOENT})

    try:
        size, version = (
            read_with_retry(path, look, missing_s, {errno.ENOENT}) if missing_s and not is_in_store else look()
        )
    except FileNotFoundError as exc:
        raise _missing_file_error(path) from exc
    except DataUnavailable as exc:
        if exc.__cause__ is not None and isinstance(exc.__cause__.__cause__, FileNotFoundError):
            raise _missing_file_error(path) from exc
        raise
    except OSError as exc:
        raise DataError(f"{path}: cannot be read: {exc}") from exc
    if size == 0:
        raise DataError(f"{path}: the file is empty (0 bytes); remove it or leave it out of the data path")
    if is_in_store:
        return StoredFile(path, size, version, filesystem, stripped, retry_s)
    return StoredFile(stripped, size, version, filesystem, retry_s=retry_s)


def file_from_record(path: str, size: int, version: str, digest: str, retry_s: float) -> StoredFile:
    """A file that was found before, as it was then; nothing is looked at."""
    filesystem, stripped = resolve_filesystem(path)
    if schemes.is_store_address(path):
        return StoredFile(path, size, version, filesystem, stripped, retry_s)
    return StoredFile(stripped, size, version, filesystem, retry_s=retry_s, content=ContentDigest(digest))


def _missing_file_error(path: str) -> DataError:
    is_in_store = schemes.is_store_address(path)
    hint = "check the bucket and the key" if is_in_store else f"check the path (relative ones start at {os.getcwd()})"
    return DataError(f"{path}: no such file; {hint}")


def resolve_filesystem(path: str) -> tuple[Any, str]:
    """The file system of a path and the path as that file system spells it."""
    try:
        if schemes.is_store_address(path):
            return schemes.open_filesystem(schemes.parse_scheme(path)), path.partition("://")[2].rstrip("/")
        filesystem, stripped = fsspec.core.url_to_fs(path)
    except SpecError as exc:
        raise DataError(f"{path}: {exc}") from exc
    except (ImportError, ValueError) as exc:
        known = ", ".join(f"{name}://" for name in (*schemes.SCHEMES, schemes.LOCAL_SCHEME))
        raise DataError(f"{path}: no file system for this address: {exc}; object stores are read by {known}") from exc
    return filesystem, str(stripped)


def read_with_retry(
    path: str, request: Callable[[], T], retry_s: float = RETRY_S, passing: Collection[int] = TRANSIENT_ERRNOS
) -> T:
    """What `request`, which reads `path`, returns; tried again where that may help, then DataUnavailable.

    Of a store that is every fault that may pass; of any other file system, errors with a number among `passing`.
    """
    if not schemes.is_store_address(path):
        return retry_until_available(lambda: _attempt(request, passing), path, retry_s)
    waiting = DataWait(path)
    try:
        answer = retry_request(
            request,
            path,
            schemes.parse_scheme(path),
            retry_s,
            wait=lambda s: waiting.wait(s, "the store does not answer"),
        )
    except StoreUnavailable as exc:
        raise DataUnavailable(
            f"{exc}; see to it, then go on from the newest checkpoint, or wait longer with data.retry_s "
            "(--data_retry_s)"
        ) from exc
    except SpecError as exc:
        raise DataError(str(exc)) from exc
    waiting.end()
    return answer


def _attempt(request: Callable[[], T], passing: Collection[int]) -> T:
    try:
        return request()
    except OSError as exc:
        if exc.errno in passing or isinstance(exc, TimeoutError):
            raise FileUnavailable(str(exc)) from exc
        raise


def _version(filesystem: Any, path: str) -> tuple[int, str]:
    if isinstance(filesystem, LocalFileSystem):
        stat = os.stat(path)
        return stat.st_size, str(stat.st_mtime_ns)
    info = filesystem.info(path)
    # What a store calls the content of an object; other file systems have a key of their own.
    tags = (info.get(name) for name in ("ETag", "etag", "generation"))
    return int(info["size"] or 0), next((str(tag) for tag in tags if tag), "") or str(filesystem.ukey(path))
