"""Finds the checkpoint that a job starts from, once, when its first master starts."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from elasticdl.checkpoint import manifest
from elasticdl.errors import CheckpointCorrupt, ElasticDLError
from elasticdl.master.machine.events import JobResumed
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.storage.paths import AnyPath, parse_path

_log = logging.getLogger(__name__)

SNAPSHOT_INDEX = "ps/index.json"  # a checkpoint with rows of ps has this file


def find_initial_snapshot(spec: JobSpec, directory: JobDirectory) -> str:
    """The newest checkpoint with rows of ps for this job to start from; "" if there is none."""
    if not spec.ps.replicas:
        return ""
    return next((str(path) for path in _candidate_checkpoints(spec, directory) if _has_ps_snapshot(path)), "")


def _candidate_checkpoints(spec: JobSpec, directory: JobDirectory) -> Iterator[AnyPath]:
    """In the order in which workers look for a first state: the job's own checkpoints, then those of `init_from`."""
    if spec.checkpoint.resume:
        yield from manifest.list_checkpoints(directory.checkpoints(spec))
    if spec.checkpoint.init_from:
        initial = parse_path(spec.checkpoint.init_from, spec.timing.store_retry_s)
        yield from [initial] if (initial / manifest.MANIFEST_FILE).exists() else manifest.list_checkpoints(initial)


def _has_ps_snapshot(checkpoint: AnyPath) -> bool:
    """Whether it has rows of ps and is undamaged: workers skip a damaged one, and all must start from the same."""
    try:
        document = manifest.read_manifest(checkpoint / manifest.MANIFEST_FILE)
        manifest.verify_files(manifest.fetch_files(checkpoint, document), document)
    except CheckpointCorrupt as exc:
        _log.warning("%s; looking for rows in the checkpoint before it", exc)
        return False
    return SNAPSHOT_INDEX in document.files


def find_resumed_checkpoint(spec: JobSpec, directory: JobDirectory) -> JobResumed | None:
    """The newest checkpoint that the job resumes from; None if there is none, or if earlier runs are known.

    Only its manifest is read: the earlier job may be deleted, or may have had another name. If its other files are
    damaged, the workers resume from the checkpoint before it, and report that. A job of this machine that is resumed by
    its name has its earlier runs beside it, which tell more (see jobs/history.py).
    """
    if not spec.checkpoint.resume or directory.previous_runs():
        return None
    try:
        for checkpoint in manifest.list_checkpoints(directory.checkpoints(spec)):
            try:
                document = manifest.read_manifest(checkpoint / manifest.MANIFEST_FILE)
            except CheckpointCorrupt as exc:
                _log.warning("%s; looking at the checkpoint before it", exc)
                continue
            records_per_epoch = int(document.extra.get("records_per_epoch") or 0)
            job = str(document.extra.get("job") or "")
            return JobResumed(document.step, document.records, records_per_epoch, str(checkpoint), job)
    except ElasticDLError as exc:  # the workers will report it
        _log.warning("the progress of the earlier run is unknown: %s", exc)
    return None
