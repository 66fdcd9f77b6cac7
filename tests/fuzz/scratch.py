"""A file in memory for decoders that read files."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path


@cache
def directory() -> Path:
    """Of this process, gone with it; in memory where the machine has such a place."""
    place = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="elasticdl-fuzz-", dir=place if place.is_dir() else None))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def file_with(data: bytes, name: str) -> Path:
    """The file `name` with these bytes, and no others in its directory."""
    path = directory() / name
    path.write_bytes(data)
    return path
