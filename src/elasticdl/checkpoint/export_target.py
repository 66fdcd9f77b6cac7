"""Checks the directory of an export: whether it is writable, and whether its contents may be replaced."""

from __future__ import annotations

import os
from pathlib import Path

from elasticdl.checkpoint import manifest, staging
from elasticdl.errors import CheckpointCorrupt, SpecError
from elasticdl.storage import probe
from elasticdl.storage.paths import AnyPath, StorePath, list_files

DESCRIPTION_FILE = "model.json"


def check_export_target(output: AnyPath) -> None:
    """Raises SpecError if an export to `output` could not be written or would destroy other files."""
    if output.is_dir():
        if _list_files(output) and not is_earlier_export(output):
            raise SpecError(
                f"output {output} holds other files and is not replaced: expected a new or empty directory, "
                "or an earlier export; name another with --output"
            )
    elif output.exists() or (isinstance(output, Path) and output.is_symlink()):
        raise SpecError(f"output {output}: expected a directory to write, found a file; name another with --output")
    check_writable(output if isinstance(output, StorePath) else staging.staging_parent(output), "output (--output)")


def check_predictions_target(output: AnyPath) -> None:
    """Raises SpecError if predictions would be mixed with other files, such as those of another run."""
    name = next(iter(_list_names(output)), None)
    if name is not None:
        raise SpecError(
            f"output {output} holds {name}: expected a new or empty directory for the predictions; "
            "name another with --output"
        )


def check_writable(directory: AnyPath, option: str = "") -> None:
    """Raises SpecError where `directory` (or, while it does not exist, the nearest that does) cannot be written to.

    A store is asked with a small object, see storage/probe.py; `option` names the option in its answer.
    """
    if isinstance(directory, StorePath):
        probe.check_writable(directory, option or str(directory))
        return
    ancestor = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not ancestor.is_dir():
        raise SpecError(f"{directory} cannot be created: {ancestor} is a file; name another directory")
    if not os.access(ancestor, os.W_OK | os.X_OK):
        raise SpecError(
            f"{ancestor} is not writable, so {directory} cannot be written; allow it or name another directory"
        )


def _list_names(output: AnyPath) -> list[str]:
    """The names in a directory; none if it does not exist."""
    return [path.name for path in output.iterdir()] if output.is_dir() else []


def _list_files(output: AnyPath) -> set[str]:
    """The files in `output`, except those of an unfinished upload."""
    return {name for name in list_files(output) if not name.startswith(staging.STAGING_PREFIX)}


def is_earlier_export(output: AnyPath) -> bool:
    """Whether `output` has only the files of an earlier export or of an unfinished upload."""
    torn = staging.list_partial_upload(output)
    try:
        document = manifest.read_manifest(output / DESCRIPTION_FILE)
    except CheckpointCorrupt:
        return bool(torn) and _list_files(output) <= torn
    return _list_files(output) <= {DESCRIPTION_FILE, *document.files, *torn}
