"""Which checkpoint a job begins from; read once, when the master starts."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from elasticdl.checkpoint import manifest
from elasticdl.errors import CheckpointCorrupt
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.storage.paths import AnyPath, parse_path

_log = logging.getLogger(__name__)

SNAPSHOT_INDEX = "ps/index.json"  # a checkpoint with rows of ps has this file


def find_initial_snapshot(spec: JobSpec, directory: JobDirectory) -> str:
    """The newest checkpoint with rows of ps that this job begins from; "": rows begin anew."""
    if not spec.ps.wish:
        return ""
    return next((str(path) for path in _candidate_checkpoints(spec, directory) if _has_ps_snapshot(path)), "")


def _candidate_checkpoints(spec: JobSpec, directory: JobDirectory) -> Iterator[AnyPath]:
    """As workers look for the first state: the job's own checkpoints, then those it was told to start from."""
    if spec.checkpoint.resume:
        yield from manifest.list_checkpoints(directory.checkpoints(spec))
    if spec.checkpoint.initial:
        initial = parse_path(spec.checkpoint.initial, spec.timing.store_s)
        yield from [initial] if (initial / manifest.MANIFEST_FILE).exists() else manifest.list_checkpoints(initial)


def _has_ps_snapshot(checkpoint: AnyPath) -> bool:
    """Whether it is whole, too: workers pass over one that is not, and all must begin from the same."""
    try:
        document = manifest.read_manifest(checkpoint / manifest.MANIFEST_FILE)
        manifest.verify_files(manifest.fetch_files(checkpoint, document), document)
    except CheckpointCorrupt as exc:
        _log.warning("%s; looking for rows in the checkpoint before it", exc)
        return False
    return SNAPSHOT_INDEX in document.files
