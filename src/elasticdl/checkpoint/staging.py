"""Writes directories that appear whole or not at all.

A directory is written under a hidden name beside its target, synced and renamed. The writer holds a lock on the hidden
directory: if the lock is free, the writer has died, and the next writer removes the directory.

The mount point of a volume cannot be renamed: there the hidden directory is inside the target, and its files are moved
one by one, the manifest, whose checksums verify the others, last.

An object store renames nothing: the files are written to a local directory and uploaded under their final names, the
manifest last. Nothing counts without it, and the next writer removes what a dead one uploaded.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from elasticdl.checkpoint import manifest
from elasticdl.errors import CheckpointFailed, StoreUnavailable
from elasticdl.storage.paths import AnyPath, StorePath
from elasticdl.storage.scratch import (
    STAGING_PREFIX,
    create_locked_directory,
    new_staging_path,
    remove_abandoned,
    scratch_directory,
)

__all__ = [
    "STAGING_PREFIX",
    "exchange_names",
    "list_partial_upload",
    "remove_abandoned",
    "staged_directory",
    "staging_parent",
    "sync_directory",
    "write_error",
]

UPLOADING_FILE = ".uploading.json"  # in a store: the names that a writer, dead or alive, may replace
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's renameat2


@contextmanager
def staged_directory(target: AnyPath, described_by: str = manifest.MANIFEST_FILE) -> Iterator[Path]:
    """Yields a directory to fill, which replaces `target` when the block ends without an error.

    `described_by` is the name of the manifest, which is moved last. Raises CheckpointFailed if the disk or the
    permissions do not allow it, and leaves nothing half-written; raises StoreUnavailable if a store does not answer.
    """
    if isinstance(target, StorePath):
        with _stage_and_upload(target, described_by) as directory:
            yield directory
    else:
        with _stage_and_rename(target, described_by) as directory:
            yield directory


@contextmanager
def _stage_and_rename(target: Path, described_by: str) -> Iterator[Path]:
    try:
        staging_parent(target).mkdir(parents=True, exist_ok=True)
        remove_abandoned(staging_parent(target))
        staging, lock = create_locked_directory(staging_parent(target), target.name)
    except OSError as exc:
        raise write_error(target, exc) from exc
    try:
        yield staging
        sync_directory(staging)
        _fill(staging, target, described_by) if target.is_mount() else _replace(staging, target)
        sync_directory(staging_parent(target))
    except OSError as exc:
        raise write_error(target, exc) from exc
    finally:
        shutil.rmtree(staging, ignore_errors=True)  # after success it does not exist, or has the replaced files
        os.close(lock)


@contextmanager
def _stage_and_upload(target: StorePath, described_by: str) -> Iterator[Path]:
    try:
        staging = new_staging_path(scratch_directory(), target.name)
        staging.mkdir()
    except OSError as exc:
        raise write_error(scratch_directory(), exc) from exc
    try:
        yield staging
        _upload(staging, target, described_by)
    except OSError as exc:
        raise write_error(staging, exc) from exc
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _upload(staging: Path, target: StorePath, described_by: str) -> None:
    """Uploads every file, the manifest last, and removes all others."""
    names = sorted(str(path.relative_to(staging)) for path in staging.rglob("*") if path.is_file())
    expected = {name: entry.bytes for name, entry in manifest.read_manifest(staging / described_by).files.items()}
    replaced = sorted({*target.list_files(), *names, *expected})
    (target / UPLOADING_FILE).write_bytes(json.dumps(replaced).encode())
    (target / described_by).unlink(missing_ok=True)  # while files change, the old version does not count
    for name in names:
        if name != described_by:
            (target / name).upload(staging / name)
    sizes = target.list_files()
    for name, size in expected.items():  # those that ps uploaded, too
        if sizes.get(name) != size:
            raise StoreUnavailable(f"{target / name}: expected {size} bytes after the upload, found {sizes.get(name)}")
    for name in sizes.keys() - expected.keys() - {UPLOADING_FILE}:
        (target / name).unlink(missing_ok=True)
    (target / described_by).upload(staging / described_by)
    (target / UPLOADING_FILE).unlink(missing_ok=True)


def list_partial_upload(target: AnyPath) -> set[str]:
    """Returns the names of an unfinished upload to `target`; none if there is no such upload."""
    if not isinstance(target, StorePath):
        return set()
    try:
        return {UPLOADING_FILE, *json.loads((target / UPLOADING_FILE).read_text())}
    except (FileNotFoundError, ValueError):
        return set()


def staging_parent(target: Path) -> Path:
    """Returns the directory in which `target` is prepared, which must be writable."""
    return target if target.is_mount() else target.absolute().parent


def write_error(path: Path, exc: OSError) -> CheckpointFailed:
    """The error of a write to `path`, with the free space and the fix."""
    ancestor = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    free = shutil.disk_usage(ancestor).free
    return CheckpointFailed(
        f"cannot write {path}: {exc.strerror or exc} ({free / 1e6:,.1f} MB free at {ancestor}). "
        "Free some space, allow writing there, or name another directory with --checkpoint_dir or --output"
    )


def exchange_names(left: Path, right: Path) -> bool:
    """Exchanges two names atomically; returns False if the file system does not support it."""
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
        if exchange_names(staging, target):
            return  # the old directory has the staging name now and is removed with it
        # Two renames. After a crash between them the old directory is hidden and unlocked: the next writer removes it.
        old = new_staging_path(staging_parent(target), target.name)
        with suppress(FileNotFoundError):  # another writer renamed it
            target.rename(old)
        with suppress(OSError):  # another writer was faster: try again
            staging.rename(target)
        shutil.rmtree(old, ignore_errors=True)
        if not staging.exists():
            return


def _fill(staging: Path, target: Path, described_by: str) -> None:
    """Moves the files of `staging` into `target`, which cannot be renamed, and removes all others."""
    new = sorted(staging.iterdir(), key=lambda path: path.name == described_by)
    kept_names = {path.name for path in new} | {staging.name}
    for old in [path for path in target.iterdir() if path.name not in kept_names]:
        shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    for path in new:
        if path.is_dir() and (target / path.name).exists():
            shutil.rmtree(target / path.name)
        path.replace(target / path.name)


def sync_directory(directory: Path) -> None:
    """Syncs the names in `directory` to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
