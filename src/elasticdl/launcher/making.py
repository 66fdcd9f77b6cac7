"""The directory of a local job, with all that its processes need to begin."""

from __future__ import annotations

import time

from elasticdl.errors import SpecError
from elasticdl.launcher import living, process
from elasticdl.launcher.record import hold
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory

LEFT = "its launcher and its master were gone"


def make(directory: JobDirectory, spec: JobSpec) -> None:
    """FileExistsError where there is one already."""
    directory.create(spec)
    _make_keys(directory, spec)


def make_again(directory: JobDirectory, spec: JobSpec) -> None:
    """For a job that goes on: see `JobDirectory.create_again`. What is left of its last run is ended first.

    SpecError where somebody keeps the job going.
    """
    process.end_leftovers(directory, LEFT)
    try:
        # As a launcher does: none of the last run can begin any more, nor can another resumption.
        with hold(directory, wait=False):
            if living.find_all(directory):
                raise BlockingIOError
            directory.create_again(spec)
            _make_keys(directory, spec)
    except BlockingIOError as exc:
        name = directory.root.name
        raise SpecError(f"job {name!r} is running; look at it with `elasticdl status {name}`") from exc


def _make_keys(directory: JobDirectory, spec: JobSpec) -> None:
    if spec.security.tls:
        from elasticdl.launcher import issuer

        issuer.make_authority(directory, spec, time.time())
    if spec.ps.wish and spec.security.is_on:
        from elasticdl.ps import keys

        keys.Keys.make().write(directory.root / keys.FILE)
