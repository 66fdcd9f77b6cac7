"""Resolves what a user asks for into a job, and launches it: on this machine, in its queue, or on a cluster."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import SystemRandom
from typing import Any

from elasticdl.errors import ElasticDLError, NameInUse, SpecError
from elasticdl.jobs import home, preflight, queueing, watch
from elasticdl.jobs.description import describe_job
from elasticdl.jobs.interface import JobBackend, SubmissionReporter
from elasticdl.jobs.local import LocalJob
from elasticdl.jobs.lookup import KUBERNETES, LOCAL
from elasticdl.jobs.options import pop_script_document
from elasticdl.spec import JobKind, JobSpec
from elasticdl.spec.directory import JobDirectory, read_json
from elasticdl.spelling import did_you_mean


@dataclass(frozen=True, slots=True)
class SubmissionSource:
    """What a user gives: a document from `file`, options by name, and where the job is to run."""

    kind: JobKind
    document: Mapping[str, Any]
    options: Mapping[str, Any]
    file: Path | None = None  # relative paths of the document are meant from its directory
    on: str = ""  # local or kubernetes; "": as the document says
    queue: str | None = None  # of this machine's scheduler; "": its default queue; None: the job starts at once
    priority: int | None = None  # in that queue


def resolve_submission(source: SubmissionSource) -> JobSpec:
    """The resolved job. SpecError for all that is wrong with its description."""
    if source.on not in ("", LOCAL, KUBERNETES):
        near = did_you_mean(source.on, (LOCAL, KUBERNETES))
        raise SpecError(f"--on: expected {LOCAL} or {KUBERNETES}; received {source.on!r}{near}")
    if source.priority is not None and source.queue is None:
        raise SpecError("--priority is for the queue of this machine: give --queue, too")
    values = dict(source.options)
    extra = pop_script_document(values) if source.kind is JobKind.SCRIPT else {}
    return describe_job(
        source.kind,
        source.document,
        values,
        file=source.file,
        working_directory=Path.cwd(),
        now=datetime.now(),
        random=SystemRandom(),
        directory_of=home.job_directory,
        find_name=home.find_name_to_resume,
        extra=extra,
        on=source.on,
        defaults=queueing.QUEUED_JOB_DEFAULTS if source.queue is not None else {},
    )


def launch_job(
    spec: JobSpec, *, context: str = "", queue: str | None = None, priority: int = 0, reporter: SubmissionReporter
) -> JobBackend:
    """Launches a resolved job that runs on by itself: on a cluster if it names one, else on this machine."""
    if spec.cluster is not None:
        from elasticdl.jobs.kubernetes import cluster_job, submission

        api, spec = submission.submit_to_cluster(spec, context, reporter)
        assert spec.cluster is not None
        return cluster_job.find_cluster_job(api, spec.cluster.namespace, spec.name)
    if queue is None:
        return LocalJob(launch_detached(spec, reporter))
    if queueing.enqueue_job(spec, queue, priority, reporter):
        queueing.await_decision(spec.name)
    return LocalJob(home.job_directory(spec.name))


def launch_detached(spec: JobSpec, reporter: SubmissionReporter) -> JobDirectory:
    """Launches a job that runs on by itself; returns once its master has accepted it, raises if it refuses."""
    from elasticdl.launcher.local import processes

    directory = prepare_directory(spec, reporter)
    launcher_pid = processes.start_launcher(directory, attached_fd=None, environ=home.process_environ())
    threading.Thread(target=_reap_process, args=(launcher_pid,), name="reaper", daemon=True).start()
    await_acceptance(directory)
    return directory


def _reap_process(pid: int) -> None:
    """Waits for our child: a Python session may outlive many jobs, and would keep a zombie of each."""
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def prepare_directory(spec: JobSpec, reporter: SubmissionReporter) -> JobDirectory:
    """Checks the job and creates its directory, with the index of its data. A wrong job leaves nothing behind."""
    directory = home.job_directory(spec.name)
    _make_jobs_directory(directory.root.parent)
    with tempfile.TemporaryDirectory(prefix=".index-", dir=directory.root.parent) as staging:
        index = Path(staging) / "index"
        index.mkdir()
        if directory.index.is_dir():
            shutil.copytree(directory.index, index, dirs_exist_ok=True)
        preflight.check_job(spec, directory, reporter, index)
        home.local_queue().remove(spec.name)  # the entry of an earlier job of this name
        _announce_leftovers(directory, reporter)
        create_directory(directory, spec)
        for path in index.iterdir():
            path.replace(directory.index / path.name)
    return directory


def _make_jobs_directory(jobs: Path) -> None:
    try:
        jobs.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as exc:
        raise SpecError(f"{jobs}: cannot be made ({exc.strerror}); set ELASTICDL_HOME to a writable place") from exc


def _announce_leftovers(directory: JobDirectory, reporter: SubmissionReporter) -> None:
    """Says which processes `create_directory` is going to end, which may take a while."""
    from elasticdl.launcher.local import processes

    if left := processes.find_replicas(directory):
        reporter.say(f"ending what is left of the last run, with a checkpoint: {processes.describe_processes(left)}")


def create_directory(directory: JobDirectory, spec: JobSpec) -> None:
    from elasticdl.launcher.local import job_directory

    if directory.root.exists():
        job_directory.recreate_job_directory(directory, spec)
        return
    try:
        job_directory.create_job_directory(directory, spec)
    except FileExistsError as exc:
        raise NameInUse(f"job {spec.name!r} was created a moment ago; choose another --job_name") from exc


def await_acceptance(directory: JobDirectory) -> None:
    """Returns once the master has accepted the job; raises if it refused it."""
    from elasticdl.rpc.client import MasterClient

    try:
        with MasterClient.connect(directory, timeout_s=watch.MASTER_START_TIMEOUT_S) as client:
            client.status()
    except ElasticDLError:
        result = read_json(directory.result)
        if result is None:
            raise
        if result.get("exit_code"):
            error = SpecError if result["exit_code"] == SpecError.exit_code else ElasticDLError
            raise error(str(result.get("reason", "the job failed at once"))) from None
