"""Checkpoints on disk or in an object store: written completely or not at all, verified when read, old ones removed."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from elasticdl.checkpoint import manifest, staging, tensors
from elasticdl.checkpoint.captured_state import MODEL_PREFIX, OPTIMIZER_PREFIX, CapturedState
from elasticdl.checkpoint.manifest import FileEntry, Manifest
from elasticdl.errors import CheckpointCorrupt, CheckpointFailed, SpecError, StoreUnavailable
from elasticdl.storage.paths import AnyPath, StorePath

MODEL_FILE = "model.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
FILES_PREFIX = "files/"  # prefix of files that the model file adds
ROWS_PREFIX = "ps/"  # prefix of files that the ps write, see ps/snapshots/snapshot_files.py

WriteExtraFiles = Callable[[Path], dict[str, FileEntry]]

_log = logging.getLogger(__name__)


def write_checkpoint(
    directory: AnyPath,
    captured: CapturedState,
    extra: dict[str, Any],
    keep: int,
    best_step: int | None = None,
    extra_files: WriteExtraFiles = lambda directory: {},
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> AnyPath:
    """Writes `captured` as a checkpoint in `directory`, then removes all but the newest `keep` and the best.

    `read_checkpoint` returns `extra` (JSON values) again. `extra_files` writes further files and returns their entries;
    `files` go into a folder of the checkpoint. A checkpoint of the same step is replaced. Raises CheckpointFailed when
    the disk is full or not writable: then nothing of it stays, and the older ones do. Raises StoreUnavailable, see
    staging.py. Older checkpoints are removed only after this one was read back from the disk and verified.
    """
    target = directory / manifest.checkpoint_name(captured.step)
    with staging.staged_directory(target) as staged:
        parts = {MODEL_FILE: MODEL_PREFIX, OPTIMIZER_FILE: OPTIMIZER_PREFIX}
        written = {
            name: tensors.write_torch_tensors(
                staged / name,
                {key.removeprefix(prefix): t for key, t in captured.tensors.items() if key.startswith(prefix)},
            )
            for name, prefix in parts.items()
        } | extra_files(staged)
        for name, content in files.items():
            (staged / FILES_PREFIX).mkdir(exist_ok=True)
            (staged / FILES_PREFIX / name).write_bytes(content)
            written[FILES_PREFIX + name] = manifest.hash_file(staged / FILES_PREFIX / name)
        document = Manifest("checkpoint", captured.step, captured.records, written, captured.meta, extra)
        write_manifest(staged / manifest.MANIFEST_FILE, document)
        if not isinstance(directory, StorePath):
            _read_back(staged, document)
    prune_checkpoints(directory, captured.step, keep, best_step)
    return target


def _read_back(directory: Path, document: Manifest) -> None:
    """Raises CheckpointFailed unless the disk (rather than the page cache) returns the written content."""
    for name in document.files:
        descriptor = os.open(directory / name, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    try:
        manifest.verify_files(directory, document)
    except CheckpointCorrupt as exc:
        raise CheckpointFailed(f"the written files cannot be read back: {exc}; check the disk") from exc


def write_manifest(path: Path, document: Manifest) -> None:
    """Writes and syncs the manifest, the last file of a checkpoint; all others are already synced."""
    with path.open("w", encoding="utf-8") as file:
        file.write(document.render())
        file.flush()
        os.fsync(file.fileno())


def prune_checkpoints(directory: AnyPath, step: int, keep: int, best_step: int | None) -> None:
    """Removes all but the newest `keep` up to `step`, and the best. Later ones belong to another run and stay.

    In an object store, unfinished uploads are removed, too. If the store does not answer, the next checkpoint tries
    again.
    """
    try:
        _remove_torn(directory)
        _remove_old(directory, step, keep, best_step)
    except StoreUnavailable as exc:
        _log.warning("old checkpoints cannot be removed yet: %s", exc)


def _remove_torn(directory: AnyPath) -> None:
    """Removes checkpoints without a manifest. One job writes here, one checkpoint at a time."""
    if isinstance(directory, StorePath):
        names = directory.list_files()
        for first in dict.fromkeys(name.partition("/")[0] for name in names):
            if manifest.parse_step(directory / first) is not None and f"{first}/{manifest.MANIFEST_FILE}" not in names:
                (directory / first).remove()


def _remove_old(directory: AnyPath, step: int, keep: int, best_step: int | None) -> None:
    steps = {
        path: path_step
        for path in manifest.list_checkpoints(directory)
        if (path_step := manifest.parse_step(path)) is not None
    }
    past = [path for path, path_step in steps.items() if path_step <= step]
    for path in past[keep:]:
        if steps[path] != best_step:
            if isinstance(path, StorePath):
                path.remove(first=manifest.MANIFEST_FILE)
            else:
                shutil.rmtree(path, ignore_errors=True)


def read_checkpoint(path: AnyPath) -> tuple[CapturedState, dict[str, Any]]:
    """Reads and verifies a checkpoint; returns its state and `extra`. Raises CheckpointCorrupt."""
    captured, extra, _ = fetch_checkpoint(path)
    return captured, extra


def fetch_checkpoint(path: AnyPath) -> tuple[CapturedState, dict[str, Any], Path]:
    """Does what `read_checkpoint` does, and also returns the local directory with all files."""
    document = manifest.read_manifest(path / manifest.MANIFEST_FILE)
    if {name for name in document.files if not name.startswith((ROWS_PREFIX, FILES_PREFIX))} != {
        MODEL_FILE,
        OPTIMIZER_FILE,
    }:
        raise CheckpointCorrupt(f"{path} is not a checkpoint: it has {', '.join(document.files) or 'no files'}")
    local = manifest.fetch_files(path, document)
    manifest.verify_files(local, document)
    loaded = {
        prefix + name: tensor
        for file, prefix in ((MODEL_FILE, MODEL_PREFIX), (OPTIMIZER_FILE, OPTIMIZER_PREFIX))
        for name, tensor in tensors.read_torch_tensors(local / file).items()
    }
    return CapturedState(document.step, document.records, loaded, document.meta), document.extra, local


def read_newest(directory: AnyPath) -> tuple[CapturedState, dict[str, Any], AnyPath] | None:
    """Reads the newest usable checkpoint; None if there is no checkpoint.

    A torn or corrupt one is skipped with a warning. Raises CheckpointCorrupt when none is usable, since to start over
    would lose the training.
    """
    checkpoints = manifest.list_checkpoints(directory)
    problems: list[str] = []
    for path in checkpoints:
        try:
            captured, extra = read_checkpoint(path)
        except CheckpointCorrupt as exc:
            problems.append(str(exc))
            _log.warning("%s; using the checkpoint before it", exc)
        else:
            return captured, extra, path
    if problems:
        raise CheckpointCorrupt(
            f"none of the {len(checkpoints)} checkpoints in {directory} is usable: {'; '.join(problems)}"
        )
    return None


def find_checkpoint(path: AnyPath) -> tuple[CapturedState, dict[str, Any], AnyPath]:
    """Reads the checkpoint at `path`, or the newest usable one in it. Raises SpecError if there is none."""
    if (path / manifest.MANIFEST_FILE).exists() or manifest.parse_step(path) is not None:
        captured, extra = read_checkpoint(path)
        return captured, extra, path
    newest = read_newest(path)
    if newest is None:
        raise SpecError(
            f"no checkpoint at {path}: expected a directory with {manifest.MANIFEST_FILE}, or one with checkpoints "
            f"such as {manifest.checkpoint_name(120)}"
        )
    return newest
