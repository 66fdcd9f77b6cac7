"""Resolves what a user asks for into a job, and launches it: on this machine, in its queue, or on a cluster."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from random import SystemRandom

from elasticdl.errors import ElasticDLError, NameInUse, SpecError
from elasticdl.jobs import history, home, preflight, queueing, watch
from elasticdl.jobs.description import DescriptionContext, JobRequest, describe_job
from elasticdl.jobs.interface import JobBackend, SubmissionReporter, WatchedJob
from elasticdl.jobs.local import LocalJob, WatchedLocalJob
from elasticdl.jobs.lookup import KUBERNETES, LOCAL
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory, read_json
from elasticdl.spelling import did_you_mean


@dataclass(frozen=True, slots=True)
class ResolvedJob:
    """A job that is ready to be launched."""

    spec: JobSpec
    context: str = ""  # of the kubeconfig
    queue: str | None = None  # of this machine's scheduler; "": its default queue; None: the job starts at once
    priority: int = 0  # in that queue
    config_file: Path | None = None  # the ctr.yaml that it comes from


def resolve_request(request: JobRequest) -> ResolvedJob:
    """Resolves a request into a job. Raises SpecError for everything that is wrong with it."""
    if request.on not in ("", LOCAL, KUBERNETES):
        near = did_you_mean(request.on, (LOCAL, KUBERNETES))
        raise SpecError(f"--on: expected {LOCAL} or {KUBERNETES}; received {request.on!r}{near}")
    if request.priority is not None and request.queue is None:
        raise SpecError("--priority is for the queue of this machine: give --queue, too")
    if request.queue is not None:
        request = replace(request, defaults=queueing.QUEUED_JOB_DEFAULTS)
    context = DescriptionContext(
        Path.cwd(), datetime.now(), SystemRandom(), home.job_directory, home.find_name_to_resume
    )
    spec = describe_job(request, context)
    if spec.cluster is None and request.context:
        raise SpecError("--context is for jobs on Kubernetes; give --image_name, too")
    return ResolvedJob(spec, request.context, request.queue, request.priority or 0)


def launch_job(job: ResolvedJob, reporter: SubmissionReporter, attached_fd: int | None = None) -> JobBackend:
    """Launches a job: on a cluster if it names one, else in the queue or as processes of this machine.

    Returns once its master or the scheduler has accepted it, and raises if it is refused. The job runs on by itself;
    with `attached_fd`, processes of this machine only until the writing end of that pipe is closed.
    """
    spec = job.spec
    if spec.cluster is not None:
        from elasticdl.jobs.kubernetes import cluster_job, submission

        api, spec = submission.submit_to_cluster(spec, job.context, reporter)
        assert spec.cluster is not None
        return cluster_job.find_cluster_job(api, spec.cluster.namespace, spec.name)
    if job.queue is not None:
        queueing.submit_to_queue(spec, job.queue, job.priority, reporter)
        return LocalJob(home.job_directory(spec.name))
    directory = prepare_directory(spec, reporter)
    launcher_pid = _start_launcher(directory, attached_fd)
    threading.Thread(target=_reap_process, args=(launcher_pid,), name="reaper", daemon=True).start()
    await_acceptance(directory)
    return LocalJob(directory)


@contextmanager
def launch_attached(job: ResolvedJob, reporter: SubmissionReporter) -> Iterator[WatchedJob]:
    """Launches a job that starts at once, and watches it.

    A job of this machine is stopped with a checkpoint when the block, or this process, ends. One on a cluster goes on.
    """
    spec = job.spec
    if spec.cluster is not None:
        from elasticdl.jobs.kubernetes import cluster_job, submission

        api, spec = submission.submit_to_cluster(spec, job.context, reporter)
        assert spec.cluster is not None
        with cluster_job.watch_cluster_job(api, spec.cluster.namespace, spec.name) as watched:
            reporter.say(f"job {spec.name} {watched.place}")
            yield watched
        return
    directory = prepare_directory(spec, reporter)
    reading, writing = os.pipe()
    try:
        launcher_pid = _start_launcher(directory, reading)
        os.close(reading)
        earlier = history.read_earlier_run(directory) if spec.checkpoint.resume else None
        watched_here = WatchedLocalJob(directory, launcher_pid)
        resumption = f", resumed {earlier.describe()}" if earlier else ""
        reporter.say(f"job {spec.name} {watched_here.place}{resumption}")
        yield watched_here
    finally:
        os.close(writing)  # the launcher stops the job


def _start_launcher(directory: JobDirectory, attached_fd: int | None) -> int:
    from elasticdl.launcher.local import processes

    return processes.start_launcher(directory, attached_fd=attached_fd, environ=home.process_environ())


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
