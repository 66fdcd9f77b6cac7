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
_SAMPLE_BLOCK_BYTES = 64 << 10
_SAMPLE_BLOCKS = 16
_WHOLE, _SAMPLE = "whole", "sample"


@dataclass(slots=True)
class ContentDigest:
    """The digest of a file's content, shared by all readers of the file in this process."""

    digest: str = ""  # "": unknown, and every new modification time counts as a change
    _same: set[str] = field(default_factory=set)  # modification times with this content
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_unchanged(self, descriptor: int, size: int, version: str) -> bool:
        """Whether the open file of this size and modification time still has the same content."""
        if not self.digest:
            return False
        with self._lock:
            if version not in self._same and compute_digest(descriptor, size, self.digest) == self.digest:
                self._same.add(version)
            return version in self._same


def compute_digest(descriptor: int, size: int, like: str = "") -> str:
    """Computes the digest of an open file in the way of `like`; by default from a sample."""
    if like.startswith(_WHOLE):
        ranges = [(start, BLOCK_BYTES) for start in range(0, size, BLOCK_BYTES)]
    elif size <= _SAMPLE_BLOCKS * _SAMPLE_BLOCK_BYTES:
        ranges = [(0, size)]
    else:
        last = size - _SAMPLE_BLOCK_BYTES
        ranges = [(last * number // (_SAMPLE_BLOCKS - 1), _SAMPLE_BLOCK_BYTES) for number in range(_SAMPLE_BLOCKS)]
    checksum = ContentChecksum()
    for start, length in ranges:
        checksum.update(os.pread(descriptor, length, start))
    return checksum.whole_file_digest() if like.startswith(_WHOLE) else checksum.sample_digest()


class ContentChecksum:
    """A checksum that is computed block by block."""

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


# Errors of local files that may be over in a moment; network file systems count as local here.
TRANSIENT_ERRNOS = frozenset(
    getattr(errno, name)
    for name in (
        "EIO", "ESTALE", "ENOENT", "EMFILE", "ENFILE", "ETIMEDOUT", "EAGAIN", "ENOMEM", "ENXIO", "ENODEV", "EREMOTEIO",
        "ENOTCONN", "ECONNRESET", "ECONNABORTED", "ECONNREFUSED", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN",
        "ENETUNREACH",
    )
)  # fmt: skip
_GAP_BYTES = 64 << 10  # ranges of a store this close are read by one request, which is cheaper than two

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it was when it was found. Reading it after a change is an error, and never mixes two contents.

    A new modification time alone is no change if the content is known to be the same.

    It has no open descriptor: a source of ten thousand files needs no more of them than a source of one.
    """

    path: str  # the path in messages
    size: int
    version: str  # changes with the content, as far as the file system knows
    filesystem: Any
    location: str = ""  # the path of its bytes, if not `path`
    retry_s: float = RETRY_S
    content: ContentDigest = field(default_factory=ContentDigest, compare=False)  # of a local file

    @property
    def is_local(self) -> bool:
        return isinstance(self.filesystem, LocalFileSystem)

    @property
    def storage_path(self) -> str:
        return self.location or self.path

    def read_ranges(self, starts: Indices, stops: Indices) -> list[bytes]:
        """Reads the bytes [start, stop) of each pair."""
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
        reads = zip(chunks, starts.tolist(), lengths, strict=True)
        chunk, start, length = next(read for read in reads if len(read[0]) != read[2])
        raise DataError(f"{self.path}, byte {start}: expected {length} bytes, got {len(chunk)}; {_CHANGED_HINT}")

    def open(self) -> IO[bytes]:
        """Opens the file for reading; a local one is unbuffered."""
        try:
            if self.is_local:
                return self.read_with_retry(self._open_local)
            self._refuse_change(*self.read_with_retry(lambda: _version(self.filesystem, self.storage_path)))
            return self._open_remote()
        except OSError as exc:
            raise self._unreadable(exc) from exc

    def read_at(self, start: int, length: int) -> bytes:
        """Reads up to `length` bytes from `start` on, fewer at the end of the file."""
        stop = min(start + length, self.size)
        if stop <= start:
            return b""
        if not self.is_local:
            return self.read_range(start, stop)
        return self.read_ranges(np.array([start]), np.array([stop]))[0]

    def blocks(self, block_bytes: int = BLOCK_BYTES, progress: ProgressCallback | None = None) -> Iterator[bytes]:
        """Yields the whole file in blocks; `progress` is called after each."""
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
        """Computes the digest from a sample, unless there is one."""
        if self.is_local and not self.content.digest:
            with self.open() as file:
                self.content.digest = self.read_with_retry(lambda: compute_digest(file.fileno(), self.size))

    def line_number(self, offset: int) -> int:
        """Returns the line of byte `offset`, counted from 1, for messages: it reads everything before."""
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
        """Reads the bytes [start, stop) of a file that is not local."""
        return bytes(self.read_with_retry(lambda: self.filesystem.cat_file(self.storage_path, start=start, end=stop)))

    def _read_merged(self, starts: Indices, stops: Indices) -> list[bytes]:
        """Reads ranges; neighbouring ones share a request."""
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
            contents = self.filesystem.cat_ranges(paths, first.tolist(), last.tolist(), on_error="raise")
            return [bytes(content) for content in contents]

        merged = self.read_with_retry(request)
        chunks = [b""] * len(starts)
        for index, owner in zip(order.tolist(), group.tolist(), strict=True):
            offset = int(first[owner])
            chunks[index] = merged[owner][int(starts[index]) - offset : int(stops[index]) - offset]
        return chunks

    def read_with_retry(self, request: Callable[[], T]) -> T:
        """Returns what `request` returns, and repeats it after transient errors."""
        return read_with_retry(self.path, request, self.retry_s)

    def _unreadable(self, exc: OSError) -> DataError:
        return DataError(f"{self.path}: can no longer be read: {exc}")

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
        detail = f"then {self.size} bytes, now {size}" if size != self.size else "the same size, different content"
        raise DataError(f"{self.path}: {_CHANGED_HINT} ({detail})")


_CHANGED_HINT = (
    "the file changed while the job was using it; start the job again, and do not change its data while it runs"
)


class _RangeReader(io.RawIOBase):
    """A file of a store as a stream. Each read is a request of its own, which can be repeated if it fails."""

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
    """Finds the file at `path`. Raises DataError if it is missing for `missing_s` seconds, or empty."""
    filesystem, stripped = resolve_filesystem(path)
    is_in_store = schemes.is_store_address(path)

    def read_version() -> tuple[int, str]:
        return read_with_retry(path, lambda: _version(filesystem, stripped), retry_s, TRANSIENT_ERRNOS - {errno.ENOENT})

    try:
        size, version = (
            read_with_retry(path, read_version, missing_s, {errno.ENOENT})
            if missing_s and not is_in_store
            else read_version()
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
    """Returns a file as it was recorded before, without reading anything."""
    filesystem, stripped = resolve_filesystem(path)
    if schemes.is_store_address(path):
        return StoredFile(path, size, version, filesystem, stripped, retry_s)
    return StoredFile(stripped, size, version, filesystem, retry_s=retry_s, content=ContentDigest(digest))


def _missing_file_error(path: str) -> DataError:
    is_in_store = schemes.is_store_address(path)
    hint = "check the bucket and the key" if is_in_store else f"check the path (relative ones start at {os.getcwd()})"
    return DataError(f"{path}: no such file; {hint}")


def resolve_filesystem(path: str) -> tuple[Any, str]:
    """Returns the file system of a path, and the path in that file system."""
    try:
        if schemes.is_store_address(path):
            return schemes.open_filesystem(schemes.parse_scheme(path)), path.partition("://")[2].rstrip("/")
        filesystem, stripped = fsspec.core.url_to_fs(path)
    except SpecError as exc:
        raise DataError(f"{path}: {exc}") from exc
    except (ImportError, ValueError) as exc:
        supported = ", ".join(f"{name}://" for name in (*schemes.SCHEMES, schemes.LOCAL_SCHEME))
        raise DataError(
            f"{path}: no file system for this address: {exc}; supported object stores are {supported}"
        ) from exc
    return filesystem, str(stripped)


def read_with_retry(
    path: str, request: Callable[[], T], retry_s: float = RETRY_S, transient: Collection[int] = TRANSIENT_ERRNOS
) -> T:
    """Returns what `request` returns, and repeats it after transient errors. Raises DataUnavailable in the end.

    A store decides itself which errors are transient; for other file systems it is those with a number in `transient`.
    """
    if not schemes.is_store_address(path):
        return retry_until_available(lambda: _attempt(request, transient), path, retry_s)
    data_wait = DataWait(path)
    try:
        answer = retry_request(
            request,
            path,
            schemes.parse_scheme(path),
            retry_s,
            wait=lambda s: data_wait.wait(s, "the store does not answer"),
        )
    except StoreUnavailable as exc:
        raise DataUnavailable(
            f"{exc}; repair it, then resume from the newest checkpoint, or wait longer with "
            "data.retry_s (--data_retry_s)"
        ) from exc
    except SpecError as exc:
        raise DataError(str(exc)) from exc
    data_wait.end()
    return answer


def _attempt(request: Callable[[], T], transient: Collection[int]) -> T:
    try:
        return request()
    except OSError as exc:
        if exc.errno in transient or isinstance(exc, TimeoutError):
            raise FileUnavailable(str(exc)) from exc
        raise


def _version(filesystem: Any, path: str) -> tuple[int, str]:
    if isinstance(filesystem, LocalFileSystem):
        stat = os.stat(path)
        return stat.st_size, str(stat.st_mtime_ns)
    info = filesystem.info(path)
    # The names that stores have for a version of an object; other file systems have a key of their own.
    tags = (info.get(name) for name in ("ETag", "etag", "generation"))
    return int(info["size"] or 0), next((str(tag) for tag in tags if tag), "") or str(filesystem.ukey(path))
