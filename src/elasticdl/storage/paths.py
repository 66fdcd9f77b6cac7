"""Paths of files: on this machine (`Path`), or in an object store (`StorePath`).

A StorePath has the few methods of a Path that a store can offer. A store has no directories and renames nothing: an
object appears whole or not at all, so of several objects the one that names the others is written last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from elasticdl.errors import SpecError, StoreUnavailable
from elasticdl.storage import schemes
from elasticdl.storage.retrying import RETRY_S, retry_request

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StorePath:
    """An object or a prefix of keys. Any thread may call its methods, and each sends a new request to the store."""

    scheme: str
    key: str  # bucket/a/b
    retry_s: float = RETRY_S

    def __str__(self) -> str:
        return f"{self.scheme}://{self.key}"

    def __truediv__(self, name: str) -> StorePath:
        return replace(self, key=f"{self.key}/{name}".rstrip("/"))

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    def exists(self) -> bool:
        """Whether the object exists, or any object below it."""
        return bool(self._ask(lambda store: store.exists(self.key)))

    def is_dir(self) -> bool:
        return bool(self.list_files())

    def list_files(self) -> dict[str, int]:
        """Returns the size in bytes of every object below this prefix, by its relative name."""
        prefix = f"{self.key}/"
        try:
            objects = self._ask(lambda store: store.find(self.key, detail=True))
        except FileNotFoundError:
            return {}
        return {
            path.removeprefix(prefix): int(info["size"] or 0)
            for path, info in sorted(objects.items())
            if path.startswith(prefix) and path != prefix
        }

    def iterdir(self) -> Iterator[StorePath]:
        for name in dict.fromkeys(name.partition("/")[0] for name in self.list_files()):
            yield self / name

    def read_bytes(self) -> bytes:
        """Raises FileNotFoundError."""
        return bytes(self._ask(lambda store: store.cat_file(self.key)))

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: bytes) -> None:
        self._ask(lambda store: store.pipe_file(self.key, content))

    def upload(self, file: Path) -> None:
        """Uploads `file`; a large file goes in parts, and the object appears when all are there."""
        size = file.stat().st_size
        self._ask(lambda store: store.put_file(str(file), self.key))
        if (stored_bytes := self._ask(lambda store: store.size(self.key))) != size:
            raise StoreUnavailable(f"{self}: expected {size} bytes after the upload, the store says {stored_bytes}")

    def download(self, file: Path) -> None:
        """Downloads the object to `file`, whole or not at all. Raises FileNotFoundError."""
        partial = file.with_name(f".{file.name}.part")
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._ask(lambda store: store.get_file(self.key, str(partial)))
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)

    def copy_to(self, target: StorePath) -> None:
        """Copies the object within the store; nothing passes through this machine."""
        self._ask(lambda store: store.cp_file(self.key, target.key))

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._ask(lambda store: store.rm_file(self.key))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove(self, first: str = "") -> None:
        """Removes every object below, `first` before the others, which are ignored without it."""
        names = self.list_files()
        for name in sorted(names, key=lambda name: name != first):
            (self / name).unlink(missing_ok=True)

    def _ask(self, request: Callable[[Any], T]) -> T:
        store = schemes.open_filesystem(self.scheme)
        return retry_request(lambda: request(store), str(self), self.scheme, self.retry_s)


AnyPath = Path | StorePath


def parse_path(address: str, retry_s: float = RETRY_S) -> AnyPath:
    """Parses an address, without a request to a store. Raises SpecError if it is not an address."""
    if problem := schemes.find_address_problem(address):
        raise SpecError(problem)
    if not schemes.is_store_address(address):
        return Path(schemes.strip_file_scheme(address))
    return StorePath(schemes.parse_scheme(address), address.partition("://")[2].rstrip("/"), retry_s)


def list_files(directory: AnyPath) -> dict[str, int]:
    """Returns the size in bytes of every file below `directory`, by its relative path; empty if there is none."""
    if isinstance(directory, StorePath):
        return directory.list_files()
    sizes: dict[str, int] = {}
    for parent, _, names in os.walk(directory):
        for path in (Path(parent) / name for name in names):
            sizes[str(path.relative_to(directory))] = path.lstat().st_size
    return sizes
