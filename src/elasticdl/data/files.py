"""One stored file, read by position. fsspec finds it; a local one is read with pread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from elasticdl.data.interface import Indices
from elasticdl.errors import DataError

BLOCK_BYTES = 4 << 20


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
            self._refuse_change(_version(self.filesystem, self.stored_at))
            chunks = self.filesystem.cat_ranges([self.stored_at] * len(starts), starts.tolist(), stops.tolist())
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
                found = _version(self.filesystem, self.stored_at)
                file = self.filesystem.open(self.stored_at, "rb")
        except OSError as exc:
            raise DataError(f"{self.path}: cannot be read any more: {exc}") from exc
        try:
            self._refuse_change(found)
        except DataError:
            file.close()
            raise
        return file

    def blocks(self, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
        """The whole file, a block at a time."""
        with self.open() as file:
            while block := file.read(block_bytes):
                yield block

    def line_of(self, offset: int) -> int:
        """The line, counted from 1, on which byte `offset` stands. Reads all before it: for messages only."""
        line, position = 1, 0
        for block in self.blocks():
            line += block.count(b"\n", 0, max(0, offset - position))
            position += len(block)
            if position >= offset:
                break
        return line

    def _refuse_change(self, found: tuple[int, str]) -> None:
        if found != (self.size, self.version):
            raise DataError(f"{self.path}: {_CHANGED} (then {self.size} bytes, now {found[0]})")


_CHANGED = "the file changed while the job was using it; start the job again and leave its data alone meanwhile"


def find(path: str) -> StoredFile:
    """The file at `path`; DataError where there is none, or nothing in it."""
    filesystem, stripped = filesystem_of(path)
    try:
        size, version = _version(filesystem, stripped)
    except FileNotFoundError as exc:
        raise DataError(f"{path}: no such file; check the path (relative ones start at {os.getcwd()})") from exc
    except OSError as exc:
        raise DataError(f"{path}: cannot be read: {exc}") from exc
    if size == 0:
        raise DataError(f"{path}: the file is empty (0 bytes); remove it or leave it out of the data path")
    return StoredFile(stripped, size, version, filesystem)


def filesystem_of(path: str) -> tuple[Any, str]:
    """The file system of a path and the path as that file system spells it."""
    try:
        filesystem, stripped = fsspec.core.url_to_fs(path)
    except (ImportError, ValueError) as exc:
        raise DataError(f"{path}: no file system for this address: {exc}") from exc
    return filesystem, str(stripped)


def _version(filesystem: Any, path: str) -> tuple[int, str]:
    if isinstance(filesystem, LocalFileSystem):
        stat = os.stat(path)
        return stat.st_size, str(stat.st_mtime_ns)
    return int(filesystem.size(path)), str(filesystem.ukey(path))
