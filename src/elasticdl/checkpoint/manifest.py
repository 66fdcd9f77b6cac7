"""What a checkpoint or an export says of itself: `manifest.json`, and how it is verified. No torch here.

A checkpoint is a directory `checkpoint-000000120` with its tensors and, written last, a manifest that holds the
length and SHA-256 of every file and a checksum of itself. What does not match its manifest does not count.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from elasticdl.errors import CheckpointCorrupt

FORMAT = 1
FILE = "manifest.json"
NAME = re.compile(r"checkpoint-(\d{9,})")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file as it was written."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    kind: Literal["checkpoint", "export"]
    step: int
    records: int
    files: dict[str, FileEntry]
    meta: dict[str, Any]  # the image's own: param_groups, scalars
    extra: dict[str, Any]  # the caller's: seed, plan, threads, …

    def render(self) -> str:
        """The text of the file. One manifest has one rendering, so that every changed byte shows."""
        return _render({"format": FORMAT, **asdict(self)})


def name_of(step: int) -> str:
    return f"checkpoint-{step:09d}"


def step_of(path: Path) -> int | None:
    """The step in a checkpoint's name; None if this is not a checkpoint's name."""
    match = NAME.fullmatch(path.name)
    return int(match.group(1)) if match else None


def checkpoints(directory: Path) -> list[Path]:
    """Every checkpoint in `directory`, newest first, usable or not; none if there is no such directory."""
    try:
        entries = list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    steps = {path: step for path in entries if (step := step_of(path)) is not None}
    return sorted(steps, key=lambda path: steps[path], reverse=True)


def read(path: Path) -> Manifest:
    """The manifest file at `path`, verified against its own checksum; raises CheckpointCorrupt."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise CheckpointCorrupt(f"{path} is missing: the checkpoint was never finished, or was taken apart") from exc
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
    if document.pop("format") != FORMAT:
        raise CheckpointCorrupt(f"{path} has another format than {FORMAT}: it was written by another ElasticDL")
    files = {name: FileEntry(**entry) for name, entry in document.pop("files").items()}
    return Manifest(files=files, **document)


def verify(directory: Path, manifest: Manifest) -> None:
    """Compare every file with the manifest; raises CheckpointCorrupt naming the first that differs."""
    for name, entry in manifest.files.items():
        path = directory / name
        try:
            size = path.stat().st_size
            if size != entry.bytes:
                raise CheckpointCorrupt(f"{path} is torn: expected {entry.bytes} bytes, found {size}")
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as exc:
            raise CheckpointCorrupt(f"{path} cannot be read: {exc}") from exc
        if found != entry.sha256:
            raise CheckpointCorrupt(f"{path} is corrupt: expected sha256 {entry.sha256}, found {found}")


def newest(directory: Path) -> Path | None:
    """The newest checkpoint in `directory` of which every byte is as it was written; None where there is none at all.

    Others are passed over with a warning. Raises CheckpointCorrupt where not one is usable.
    """
    problems: list[str] = []
    for path in checkpoints(directory):
        try:
            verify(path, read(path / FILE))
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


def entry(path: Path) -> FileEntry:
    """Of a file that is written; it is on the disk afterwards."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    return FileEntry(path.stat().st_size, digest)
