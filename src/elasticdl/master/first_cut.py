"""Where the rows of a job come from that goes on from a checkpoint. Read once, when the master starts."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from elasticdl.checkpoint import manifest
from elasticdl.errors import CheckpointCorrupt
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.storage.place import Place, open_place

_log = logging.getLogger(__name__)

INDEX = "ps/index.json"  # a checkpoint with rows of ps has this file


def find(spec: JobSpec, directory: JobDirectory) -> str:
    """The newest checkpoint with rows of ps that this job begins from; "": rows begin anew."""
    if not spec.ps.wish:
        return ""
    return next((str(path) for path in _candidates(spec, directory) if _has_rows(path)), "")


def _candidates(spec: JobSpec, directory: JobDirectory) -> Iterator[Place]:
    """As workers look for the first state: the job's own checkpoints, then those it was told to start from."""
    if spec.checkpoint.resume:
        yield from manifest.checkpoints(directory.checkpoints(spec))
    if spec.checkpoint.initial:
        initial = open_place(spec.checkpoint.initial, spec.timing.store_s)
        yield from [initial] if (initial / manifest.FILE).exists() else manifest.checkpoints(initial)


def _has_rows(checkpoint: Place) -> bool:
    """Whether it is whole, too: workers pass over one that is not, and all must begin from the same."""
    try:
        document = manifest.read(checkpoint / manifest.FILE)
        manifest.verify(manifest.fetch(checkpoint, document), document)
    except CheckpointCorrupt as exc:
        _log.warning("%s; looking for rows in the checkpoint before it", exc)
        return False
    return INDEX in document.files
