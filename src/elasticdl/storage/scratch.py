"""Hidden, locked directories of a running process; the next process removes those whose owner is dead.

`scratch_directory` is for files on their way to or from an object store.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from elasticdl.errors import SpecError
from elasticdl.storage.names import safe_join
from elasticdl.storage.paths import StorePath

STAGING_PREFIX = ".staging-"


def create_locked_directory(directory: Path, stem: str) -> tuple[Path, int]:
    """Makes a hidden directory; returns it and the descriptor of its lock, which the caller closes at the end."""
    while True:
        path = new_staging_path(directory, stem)
        path.mkdir()
        lock = _try_lock(path)
        if lock is not None and path.exists():
            return path, lock
        if lock is not None:  # another process removed it between the two calls
            os.close(lock)


def new_staging_path(directory: Path, stem: str) -> Path:
    """Returns a new name for a directory, which `remove_abandoned` recognizes."""
    return directory / f"{STAGING_PREFIX}{stem}-{secrets.token_hex(4)}"


def remove_abandoned(directory: Path) -> None:
    """Removes the directories that dead processes left in `directory`."""
    for path in directory.glob(STAGING_PREFIX + "*"):
        lock = _try_lock(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def scratch_directory() -> Path:
    """Returns a private directory of this process, which is removed when it ends, or by the next process."""
    return _make_scratch_directory(os.getpid(), tempfile.gettempdir())


def download_files(source: StorePath, names: Iterable[str], version: str) -> Path:
    """Returns a local directory with these files of `source`, each downloaded once in this process.

    `version` distinguishes contents of the same address at different times. Raises FileNotFoundError, UnsafeName.
    """
    key = hashlib.sha256(f"{source}\n{version}".encode()).hexdigest()[:32]
    directory = scratch_directory() / key
    directory.mkdir(exist_ok=True)
    for name in names:
        file = safe_join(directory, name)
        if not file.exists():
            (source / name).download(file)
    return directory


@lru_cache(maxsize=1)
def _make_scratch_directory(pid: int, temporary: str) -> Path:
    shared = Path(temporary) / f"elasticdl-{os.getuid()}"
    shared.mkdir(mode=0o700, exist_ok=True)
    stat = shared.lstat()
    if stat.st_uid != os.getuid() or shared.is_symlink() or stat.st_mode & 0o077:
        raise SpecError(
            f"{shared}: expected a directory that only you can access; remove it, or set TMPDIR to another directory"
        )
    remove_abandoned(shared)
    path, _ = create_locked_directory(shared, "store")  # its lock ends with the process
    atexit.register(_remove_at_exit, path, pid)
    return path


def _remove_at_exit(path: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(path, ignore_errors=True)


def _try_lock(path: Path) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
