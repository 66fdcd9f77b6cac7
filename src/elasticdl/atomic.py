"""Replaces files atomically: a reader finds the old content or all of the new, whenever the writer dies."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PRIVATE_MODE = 0o600  # only its owner may read it
_SHARED_MODE = 0o666  # less what the process's umask takes away


@contextmanager
def open_file(path: Path, *, mode: int = _SHARED_MODE, sync: bool = False) -> Iterator[BinaryIO]:
    """Yields a file to write, which becomes `path` at the end; after an error `path` is unchanged.

    Several may write to one path at once: the last to end wins. With `sync` the bytes are on disk before they have
    their name, so that a power cut does no harm either.
    """
    staging = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(descriptor)
        staging.replace(path)
    except BaseException:
        staging.unlink(missing_ok=True)
        raise


def write_file(path: Path, content: str | bytes, *, mode: int = _SHARED_MODE, sync: bool = False) -> None:
    """Replaces the content of `path`; text is written as UTF-8."""
    with open_file(path, mode=mode, sync=sync) as file:
        file.write(content.encode() if isinstance(content, str) else content)
