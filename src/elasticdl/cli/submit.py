"""The common course of train, run, evaluate and predict: options, description, submission, exit code."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

import click

from elasticdl.cli.arguments import resolve_name
from elasticdl.cli.command import Decorated, JobOption, did_you_mean
from elasticdl.errors import SpecError
from elasticdl.jobs import home, queueing
from elasticdl.jobs.description import describe_job
from elasticdl.jobs.lookup import on_option
from elasticdl.spec import JobKind, JobSpec, load
from elasticdl.spec.directory import JobDirectory

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """What is to be done with a job, beside what the job is."""

    on: str = ""  # local or kubernetes; "": as the job says
    context: str = ""
    dry_run: str = ""  # client: print the job; server: let the API server judge its objects
    yaml: bool = False
    detach: bool = False
    priority: int | None = None  # in the queue of this machine

    @classmethod
    def pop_from(cls, values: dict[str, Any]) -> SubmitOptions:
        """Take the options of `submit_options` out of those given to a command."""
        dry_run = values.pop("dry_run")
        return cls(
            on=values.pop("on") or "",
            context=values.pop("context") or "",
            dry_run=dry_run if isinstance(dry_run, str) else "client" if dry_run else "",
            yaml=values.pop("yaml"),
            detach=values.pop("detach"),
            priority=values.pop("priority"),
        )


def submit_options(function: Decorated) -> Decorated:
    """--on, --context, --dry-run, --yaml, --detach and --priority: see `Manner`."""

    def option(*flags: str, section: str = "Job", **more: Any) -> Callable[[Decorated], Decorated]:
        return click.option(*flags, cls=JobOption, section=section, **more)

    kubernetes = "Kubernetes"
    dry = "Print the resolved job as YAML, run nothing; --dry-run=server: let the API server judge each of its objects."
    ahead = "With --queue: jobs of greater priority go first, and take workers from others. Default: 0."
    shown = "Print the objects that would be created on Kubernetes, without secrets, and run nothing."
    for decorate in (
        option("--priority", type=int, metavar="N", help=ahead),
        option("--detach", is_flag=True, help="Return at once; the job runs on by itself."),
        option("--dry-run", is_flag=True, flag_values=("client", "server"), help=dry),
        option("--context", metavar="NAME", section=kubernetes, help="Context of the kubeconfig. Default: current."),
        option("--yaml", is_flag=True, section=kubernetes, help=shown),
        on_option("Where the job runs. Default: on Kubernetes if it has an image.", cls=JobOption, section=kubernetes),
    ):
        function = decorate(function)
    return function


def run_submit_verb(
    kind: JobKind, file: Path | None, values: dict[str, Any], *, extra: dict[str, Any] | None = None
) -> int:
    """Run the described job; its exit code."""
    manner = SubmitOptions.pop_from(values)
    from elasticdl.ctr import config_job

    given = load.read_yaml_file(file) if file is not None else {}
    is_config = config_job.is_ctr_config(given)
    queue = queueing.pop_queue_option(values, given.get("job") or {} if is_config else given, manner.on)
    if manner.priority is not None and queue is None:
        raise SpecError("--priority is for the queue of this machine: give --queue, too")
    if file is not None and is_config:
        if not (manner.dry_run or manner.yaml or values.get("image_name") or (given.get("job") or {}).get("cluster")):
            config_job.check_model_framework(given, kind)  # before the analysis, which may take minutes
        given = config_job.job_document(file, given, kind, values)
    spec = describe_job(
        kind,
        given,
        values,
        file=file,
        working_directory=Path.cwd(),
        now=datetime.now(),
        random=SystemRandom(),
        directory_of=home.job_directory,
        find_name=_find_job_to_resume,
        extra=extra,
        on=manner.on,
        defaults=queueing.QUEUED_JOB_DEFAULTS if queue is not None else {},
    )
    if spec.cluster is None and (manner.yaml or manner.context or manner.dry_run == "server"):
        raise SpecError("--yaml, --context and --dry-run=server are for jobs on Kubernetes; give --image_name, too")
    if manner.dry_run == "client":
        import yaml

        click.echo(yaml.safe_dump(spec.model_dump(mode="json", exclude_none=True), sort_keys=False), nl=False)
        return 0
    if spec.cluster is not None:
        from elasticdl.jobs.kubernetes import submission

        return submission.submit_to_cluster(spec, manner)
    if queue is not None:
        return queueing.submit_to_queue(spec, queue, manner.priority or 0)
    code = run_locally(spec, detach=manner.detach)
    # A job that is resumed by its name may have come from a config, too.
    if kind is JobKind.TRAINING and not manner.detach and (file is None or is_config):
        from elasticdl.ctr.report import generation

        generation.report_finished_job(spec.name, file)
    return code


def _find_job_to_resume(word: str) -> str:
    """The whole name of a job to go on with; it may be `last`, or a prefix."""
    known = home.job_names()
    name = resolve_name(word, known)
    if name is None:
        hint = did_you_mean(word, known, "; see `elasticdl jobs`" if known else "; there is none yet")
        raise SpecError(f"--resume: there is no job {word!r} to go on with in {home.jobs_directory()}{hint}")
    return name


def prepare_directory(spec: JobSpec, console: Console) -> JobDirectory:
    """The job's directory, with all that was learnt about its data. A wrong job leaves nothing behind."""
    from elasticdl.jobs import preflight

    directory = home.job_directory(spec.name)
    _make_jobs_directory(directory.root.parent)
    with tempfile.TemporaryDirectory(prefix=".index-", dir=directory.root.parent) as staging:
        index = Path(staging) / "index"
        index.mkdir()
        if directory.index.is_dir():
            shutil.copytree(directory.index, index, dirs_exist_ok=True)
        preflight.check_job(spec, directory, console, index)
        home.local_queue().remove(spec.name)  # of a job that is over
        _announce_leftovers(directory, console)
        create_directory(directory, spec)
        for path in index.iterdir():
            path.replace(directory.index / path.name)
    return directory


def run_locally(spec: JobSpec, *, detach: bool) -> int:
    from rich.console import Console

    from elasticdl.cli import attach
    from elasticdl.jobs import history
    from elasticdl.jobs.local import WatchedLocalJob
    from elasticdl.launcher.local import processes

    console = Console()
    directory = prepare_directory(spec, console)
    if detach:
        processes.start_launcher(directory, attached_fd=None)
        _await_acceptance(directory)
        click.echo(detached_message(spec.name, f"in {directory.root}"))
        return 0
    reading, writing = os.pipe()
    try:
        pid = processes.start_launcher(directory, attached_fd=reading)
        os.close(reading)
        had = history.read_earlier_run(directory) if spec.checkpoint.resume else None
        about = f"job {spec.name} in {directory.root}{f', resumed {had.describe()}' if had else ''}"
        console.print(about, highlight=False, markup=False, soft_wrap=True)
        return attach.attach_terminal(WatchedLocalJob(directory), console, pid)
    finally:
        # Whatever ends us, the end of this pipe tells the launcher to stop the job.
        os.close(writing)


def _make_jobs_directory(jobs: Path) -> None:
    try:
        jobs.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as exc:
        raise SpecError(f"{jobs}: cannot be made ({exc.strerror}); set ELASTICDL_HOME to a writable place") from exc


def _announce_leftovers(directory: JobDirectory, console: Console) -> None:
    """What `create` is going to end, which may take a while."""
    from elasticdl.launcher.local import processes

    if left := processes.find_replicas(directory):
        told = f"ending what is left of the last run, with a checkpoint: {processes.describe_processes(left)}"
        console.print(told, highlight=False, markup=False, soft_wrap=True)


def create_directory(directory: JobDirectory, spec: JobSpec) -> None:
    from elasticdl.launcher.local import job_directory

    if directory.root.exists():
        job_directory.recreate_job_directory(directory, spec)
        return
    try:
        job_directory.create_job_directory(directory, spec)
    except FileExistsError as exc:
        raise SpecError(f"job {spec.name!r} was created a moment ago; choose another --job_name") from exc


def _await_acceptance(directory: JobDirectory) -> None:
    """Return once the master has taken the job on; raise if it has refused it."""
    from elasticdl.errors import ElasticDLError
    from elasticdl.jobs import watch
    from elasticdl.rpc.client import MasterClient
    from elasticdl.spec.directory import read_json

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


def detached_message(name: str, where: str) -> str:
    """For a job that runs on without us."""
    return "\n".join(
        (
            f"job {name} runs on by itself {where}",
            f"  look at it   elasticdl status {name}",
            f"  read along   elasticdl logs {name} -f",
            f"  change it    elasticdl scale {name} --workers N",
            f"  end it       elasticdl stop {name}",
        )
    )
