"""Files in memory, for decoders that read files."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path


@cache
def directory() -> Path:
    """Returns a directory of this process, removed at its end; in memory if the machine has /dev/shm."""
    memory = Path("/dev/shm")
    created = Path(tempfile.mkdtemp(prefix="elasticdl-fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, created, ignore_errors=True)
    return created


def file_with(data: bytes, name: str) -> Path:
    """Writes the file `name` and returns its path."""
    path = directory() / name
    path.write_bytes(data)
    return path
