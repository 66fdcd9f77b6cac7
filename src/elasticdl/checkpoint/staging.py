"""A directory appears whole or not at all.

It is written under a hidden name beside its place, synced and renamed. The writer holds a lock on the hidden
directory: one whose lock is free belongs to a writer that died, and is swept away by the next.

A place where a volume is mounted cannot be renamed: there the hidden directory lies inside, and what it holds is moved
out piece by piece, what was written last (the description, by its checksums the judge of the rest) last.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from elasticdl.errors import CheckpointFailed

PREFIX = ".staging-"
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's renameat2


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Yield a directory to fill; it becomes `target`, replacing what was there, when the block ends well.

    Raises CheckpointFailed where the disk or the permissions do not allow it; nothing half-written stays.
    """
    try:
        beside(target).mkdir(parents=True, exist_ok=True)
        sweep(beside(target))
        staging, lock = _open(target)
    except OSError as exc:
        raise failed(target, exc) from exc
    try:
        yield staging
        sync(staging)
        _fill(staging, target) if target.is_mount() else _replace(staging, target)
        sync(beside(target))
    except OSError as exc:
        raise failed(target, exc) from exc
    finally:
        shutil.rmtree(staging, ignore_errors=True)  # gone already, or what was replaced, when all went well
        os.close(lock)


def beside(target: Path) -> Path:
    """The directory in which `target` is prepared: what must be writable."""
    return target if target.is_mount() else target.absolute().parent


def sweep(directory: Path) -> None:
    """Remove what dead writers left in `directory`."""
    for path in directory.glob(PREFIX + "*"):
        lock = _try_lock(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def failed(path: Path, exc: OSError) -> CheckpointFailed:
    """What went wrong at `path`, how much room there is, and what to do."""
    place = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    return CheckpointFailed(
        f"cannot write {path}: {exc.strerror or exc} ({free / 1e6:,.1f} MB free at {place}). "
        "Free some space, allow writing there, or name another directory with --checkpoint_dir or --output"
    )


def _open(target: Path) -> tuple[Path, int]:
    while True:
        staging = _hidden(target)
        staging.mkdir()
        lock = _try_lock(staging)
        if lock is not None and staging.exists():
            return staging, lock
        if lock is not None:  # someone swept between the two calls
            os.close(lock)


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


def exchange(left: Path, right: Path) -> bool:
    """Let two names change places in one step; False where the file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(AT_FDCWD, os.fsencode(left), AT_FDCWD, os.fsencode(right), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.ENOENT):
        return False
    raise OSError(number, os.strerror(number), str(right))


def _replace(staging: Path, target: Path) -> None:
    while True:
        try:
            staging.rename(target)  # also over an empty directory
            return
        except OSError as exc:
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if exchange(staging, target):
            return  # what was there has the staging name now and goes with it
        # Two renames, nothing between them. Hidden and unlocked, the old one is left to the next sweep by a crash.
        old = _hidden(target)
        with suppress(FileNotFoundError):  # another writer was just as far
            target.rename(old)
        with suppress(OSError):  # another writer was faster: once more
            staging.rename(target)
        shutil.rmtree(old, ignore_errors=True)
        if not staging.exists():
            return


def _fill(staging: Path, target: Path) -> None:
    """Make `target`, which must stay, hold what `staging` does."""
    new = sorted(staging.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    kept = {path.name for path in new} | {staging.name}
    for old in [path for path in target.iterdir() if path.name not in kept]:
        shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    for path in new:
        if path.is_dir() and (target / path.name).exists():
            shutil.rmtree(target / path.name)
        path.replace(target / path.name)


def sync(directory: Path) -> None:
    """The names in `directory` are on the disk when this returns."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hidden(target: Path) -> Path:
    return beside(target) / f"{PREFIX}{target.name}-{secrets.token_hex(4)}"
