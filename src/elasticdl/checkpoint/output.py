"""The place of an export: may it be written, and is what lies there ours to replace? No torch here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from elasticdl.checkpoint import manifest, staging
from elasticdl.errors import CheckpointCorrupt, SpecError

DESCRIPTION_FILE = "model.json"


def check(output: Path) -> None:
    """Raise SpecError where an export to `output` could not be written or would destroy something not ours."""
    if output.is_dir():
        if any(_found(output)) and not is_ours(output):
            raise SpecError(
                f"output {output} holds other files and is not replaced: expected a new or empty directory, "
                "or an earlier export; name another with --output"
            )
    elif output.exists() or output.is_symlink():
        raise SpecError(f"output {output}: expected a directory to write, found a file; name another with --output")
    check_writable(staging.beside(output))


def check_predictions(output: Path) -> None:
    """Raise SpecError where predictions would be mixed with something else, be it the predictions of another run."""
    found = next(output.iterdir(), None) if output.is_dir() else None
    if found is not None:
        raise SpecError(
            f"output {output} holds {found.name}: expected a new or empty directory for the predictions; "
            "name another with --output"
        )


def check_writable(directory: Path) -> None:
    """Raise SpecError where `directory` (or, while it does not exist, the nearest that does) cannot be written to."""
    place = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not place.is_dir():
        raise SpecError(f"{directory} cannot be made: {place} is a file; name another directory")
    if not os.access(place, os.W_OK | os.X_OK):
        raise SpecError(
            f"{place} is not writable, so {directory} cannot be written; allow it or name another directory"
        )


def _found(output: Path) -> Iterator[Path]:
    """The files there, but for those that somebody is about to put there."""
    for path in output.rglob("*"):
        is_staged = path.relative_to(output).parts[0].startswith(staging.PREFIX)
        if not path.is_dir() and not is_staged:
            yield path


def is_ours(output: Path) -> bool:
    """Whether `output` is an earlier export: everything in it is named in its own description."""
    try:
        document = manifest.read(output / DESCRIPTION_FILE)
    except CheckpointCorrupt:
        return False
    found = {str(path.relative_to(output)) for path in _found(output)}
    return found <= {DESCRIPTION_FILE, *document.files}
