"""The directory of a local job, with all that its processes need to begin."""

from __future__ import annotations

from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory


def make(directory: JobDirectory, spec: JobSpec) -> None:
    """FileExistsError where there is one already."""
    directory.create(spec)
    _make_keys(directory, spec)


def make_again(directory: JobDirectory, spec: JobSpec) -> None:
    """For a job that goes on: see `JobDirectory.create_again`."""
    directory.create_again(spec)
    _make_keys(directory, spec)


def _make_keys(directory: JobDirectory, spec: JobSpec) -> None:
    if spec.ps.wish and spec.security.is_on:
        from elasticdl.ps import keys

        keys.Keys.make().write(directory.root / keys.FILE)
