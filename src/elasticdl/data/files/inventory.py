"""The inventory: a job's data files as its first worker found them, shared by all workers of the run."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from elasticdl.errors import DataError


class FileRecord(NamedTuple):
    """A file as it was found."""

    path: str
    size: int
    version: str
    digest: str


def load_inventory(directory: Path, uri: str, run: str) -> list[FileRecord] | None:
    """Returns the inventory of a run, or None if no worker has written it."""
    path = _path(directory, uri, run)
    try:
        return [FileRecord(*entry) for entry in json.loads(path.read_text())]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as exc:
        raise DataError(f"{uri}: the list of its files in {path} cannot be read: {exc}; start the job again") from exc


def save_inventory(directory: Path, uri: str, run: str, files: Sequence[FileRecord]) -> list[FileRecord]:
    """Writes the inventory, unless another worker was faster; returns what is in it."""
    path = _path(directory, uri, run)
    staging = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        staging.write_text(json.dumps(files))
        try:
            os.link(staging, path)
        except FileExistsError:
            pass
        except OSError:  # on a file system without links the last writer wins
            staging.replace(path)
    except OSError as exc:
        raise DataError(f"{uri}: the list of its files cannot be written to {directory}: {exc}") from exc
    finally:
        staging.unlink(missing_ok=True)
    return load_inventory(directory, uri, run) or list(files)


def _path(directory: Path, uri: str, run: str) -> Path:
    name = hashlib.sha256("\n".join([run, uri]).encode()).hexdigest()[:32]
    return directory / f"{name}.files.json"
