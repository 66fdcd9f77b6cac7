"""Creates the directory of a local job, with all files that its processes need to begin."""

from __future__ import annotations

import time

from elasticdl.errors import SpecError
from elasticdl.launcher.local import processes
from elasticdl.launcher.local.record import lock_job
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory

LEFTOVERS_REASON = "its launcher and its master had ended"


def create_job_directory(directory: JobDirectory, spec: JobSpec) -> None:
    """Create the directory of a new job. Raises FileExistsError if it exists."""
    directory.create(spec)
    _create_keys(directory, spec)


def recreate_job_directory(directory: JobDirectory, spec: JobSpec) -> None:
    """Prepare the directory for the next run of the job; see `JobDirectory.create_next_run`.

    Ends leftover replicas of the last run first. Raises SpecError if the job is running.
    """
    processes.end_leftovers(directory, LEFTOVERS_REASON)
    try:
        # With the launcher's lock, no launcher of the last run can start, nor can another resumption.
        with lock_job(directory, wait=False):
            if processes.find_processes(directory):
                raise BlockingIOError
            directory.create_next_run(spec)
            _create_keys(directory, spec)
    except BlockingIOError as exc:
        name = directory.root.name
        raise SpecError(f"job {name!r} is running; look at it with `elasticdl status {name}`") from exc


def _create_keys(directory: JobDirectory, spec: JobSpec) -> None:
    if spec.security.tls:
        from elasticdl.launcher import certificate_manager

        certificate_manager.create_authority(directory, spec, time.time())
    if spec.ps.replicas and spec.security.is_on:
        from elasticdl.ps.wire import keys

        keys.CurveKeys.generate().write(directory.root / keys.KEYS_FILE)
