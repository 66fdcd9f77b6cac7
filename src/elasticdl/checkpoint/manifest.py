"""The manifest of a checkpoint or an export, `manifest.json`, and how it is verified. No torch here.

A checkpoint is a directory `checkpoint-000000120` with its tensors and, written last, a manifest that holds the
length and SHA-256 of every file and a checksum of itself. What does not match its manifest does not count. In an
object store nothing counts that has no manifest: `fetch` makes a local directory of what has one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from elasticdl import atomic
from elasticdl.errors import CheckpointCorrupt, is_machine_error
from elasticdl.retry import retry_call
from elasticdl.storage import scratch
from elasticdl.storage.names import UnsafeName, check_relative_path, safe_join
from elasticdl.storage.paths import AnyPath, StorePath

FORMAT = 1
MANIFEST_FILE = "manifest.json"
RETRY_S = 4.0  # how long a read is retried after errors of this machine, before a checkpoint counts as corrupt
CHECKPOINT_NAME = re.compile(r"checkpoint-(\d{9,})")

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Length and checksum of a file as it was written."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    kind: Literal["checkpoint", "export"]
    step: int
    records: int
    files: dict[str, FileEntry]
    meta: dict[str, Any]  # the captured state's own: param_groups, scalars
    extra: dict[str, Any]  # the caller's: seed, plan, threads, …

    def render(self) -> str:
        """The text of the file. A manifest has a single rendering, so that every changed byte is detected."""
        return _render({"format": FORMAT, **asdict(self)})


def checkpoint_name(step: int) -> str:
    return f"checkpoint-{step:09d}"


def parse_step(path: AnyPath) -> int | None:
    """The step in a checkpoint's name; None if this is not a checkpoint's name."""
    match = CHECKPOINT_NAME.fullmatch(path.name)
    return int(match.group(1)) if match else None


def list_checkpoints(directory: AnyPath) -> list[AnyPath]:
    """Every checkpoint in `directory`, newest first, usable or not; none if there is no such directory.

    In an object store, only those that have a manifest: the others are unfinished uploads.
    """
    entries: list[AnyPath] = []
    if isinstance(directory, StorePath):
        names = [name.partition("/") for name in directory.list_files()]
        entries = [directory / first for first, _, file in names if file == MANIFEST_FILE]
    else:
        try:
            entries = list(directory.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
    steps = {path: step for path in entries if (step := parse_step(path)) is not None}
    return sorted(steps, key=lambda path: steps[path], reverse=True)


def read_manifest(path: AnyPath) -> Manifest:
    """The manifest file at `path`, verified against its own checksum; raises CheckpointCorrupt."""
    try:
        text = _read_with_retries(path.read_bytes).decode()  # bytes, so that newlines are not translated
    except FileNotFoundError as exc:
        raise CheckpointCorrupt(f"{path} is missing: the checkpoint was never finished, or was changed") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise CheckpointCorrupt(f"{path} cannot be read: {exc}") from exc
    try:
        document = json.loads(text)
        checksum = document.pop("checksum")
        intact = _render(document) == text
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as exc:
        raise CheckpointCorrupt(f"{path} is not a manifest: {exc}") from exc
    if not intact:
        raise CheckpointCorrupt(f"{path} does not match its own checksum {checksum}: it was changed after writing")
    if document.pop("format", None) != FORMAT:
        raise CheckpointCorrupt(f"{path} has another format than {FORMAT}: it was written by another ElasticDL")
    try:
        files = {name: FileEntry(**entry) for name, entry in document.pop("files").items()}
        parsed = Manifest(files=files, **document)
        _check_types(parsed)
    except (ValueError, KeyError, AttributeError, TypeError) as exc:
        raise CheckpointCorrupt(f"{path} is not a manifest: {exc}") from exc
    return parsed


def _check_types(manifest: Manifest) -> None:
    """Raises TypeError if a value has another type than declared, because readers of the manifest rely on the types.

    Raises UnsafeName if a file is not in this directory.
    """
    expected = [("step", manifest.step, int), ("records", manifest.records, int), ("meta", manifest.meta, dict)]
    expected += [("extra", manifest.extra, dict)]
    for name, entry in manifest.files.items():
        check_relative_path(name)
        expected += [(f"{name}: bytes", entry.bytes, int), (f"{name}: sha256", entry.sha256, str)]
    for name, value, kind in expected:
        if type(value) is not kind:
            raise TypeError(f"{name}: expected {kind.__name__}, received {value!r:.80}")
    if manifest.kind not in ("checkpoint", "export"):
        raise TypeError(f"kind: expected 'checkpoint' or 'export', received {manifest.kind!r:.80}")


def verify_files(directory: Path, manifest: Manifest) -> None:
    """Compares every file with the manifest; raises CheckpointCorrupt, which names the first that differs."""
    for name, entry in manifest.files.items():
        path = directory / name
        try:
            path = safe_join(directory, name)
            size = path.stat().st_size
            if size != entry.bytes:
                raise CheckpointCorrupt(f"{path} is torn: expected {entry.bytes} bytes, found {size}")
            digest = _read_with_retries(partial(_sha256, path))
        except (OSError, UnsafeName) as exc:
            raise CheckpointCorrupt(f"{path} cannot be read: {exc}") from exc
        if digest != entry.sha256:
            raise CheckpointCorrupt(f"{path} is corrupt: expected sha256 {entry.sha256}, found {digest}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_with_retries(read: Callable[[], T]) -> T:
    """Calls `read`, again after errors of the device or a lack of descriptors, which may be temporary."""

    def log_wait(error: Exception, remaining_s: float) -> None:
        _log.warning("trying to read again for %.1f s: %s", remaining_s, error)

    return retry_call(
        read,
        lambda error: isinstance(error, OSError) and is_machine_error(error),
        RETRY_S,
        on_wait=log_wait,
    )


def fetch_files(
    directory: AnyPath, manifest: Manifest, file: str = MANIFEST_FILE, names: Iterable[str] | None = None
) -> Path:
    """Returns a local directory with the files of a checkpoint or an export: `directory` itself, or a copy.

    `file` is what the manifest is called, and lies there, too. `names` are the files wanted, by default all.
    Raises CheckpointCorrupt if one is missing; it does not verify them.
    """
    if not isinstance(directory, StorePath):
        return directory
    text = manifest.render()
    version = hashlib.sha256(text.encode()).hexdigest()
    try:
        directory = scratch.download_files(directory, manifest.files if names is None else names, version)
    except (FileNotFoundError, UnsafeName) as exc:
        raise CheckpointCorrupt(f"{directory} is torn: its {file} names a file that is missing: {exc}") from exc
    if not (directory / file).exists():
        atomic.write_file(directory / file, text)
    return directory


def find_newest(directory: AnyPath) -> AnyPath | None:
    """The newest intact checkpoint in `directory`; None if there is no checkpoint.

    Damaged ones are skipped with a warning. Raises CheckpointCorrupt if none is usable.
    """
    problems: list[str] = []
    for path in list_checkpoints(directory):
        try:
            document = read_manifest(path / MANIFEST_FILE)
            verify_files(fetch_files(path, document), document)
        except CheckpointCorrupt as exc:
            problems.append(str(exc))
            _log.warning("%s; using the checkpoint before it", exc)
        else:
            return path
    if problems:
        raise CheckpointCorrupt(f"none of the checkpoints in {directory} is usable: {'; '.join(problems)}")
    return None


def _render(document: dict[str, Any]) -> str:
    body = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True)
    checksum = hashlib.sha256(body.encode()).hexdigest()
    return json.dumps({**document, "checksum": checksum}, indent=1, sort_keys=True, ensure_ascii=True) + "\n"


def hash_file(path: Path) -> FileEntry:
    """Syncs a file to the disk and returns its length and checksum."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    return FileEntry(path.stat().st_size, digest)
