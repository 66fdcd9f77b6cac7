"""The common course of train, run, evaluate and predict: options, description, submission, exit code."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elasticdl.cli.arguments import on_option
from elasticdl.cli.command import Decorated, JobOption, current_command_line
from elasticdl.errors import SpecError
from elasticdl.spec import JobKind, JobSpec

if TYPE_CHECKING:
    from elasticdl.jobs.interface import SubmissionReporter


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
    """--on, --context, --dry-run, --yaml, --detach and --priority: see `SubmitOptions`."""

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


def run_submit_verb(kind: JobKind, file: Path | None, values: dict[str, Any]) -> int:
    """Runs the described job. Returns the exit code of the command."""
    from elasticdl import api
    from elasticdl.cli.screens.progress_bars import TerminalReporter

    manner = SubmitOptions.pop_from(values)
    is_preview = bool(manner.dry_run or manner.yaml)
    reporter = TerminalReporter()
    resolved = api.resolve_job(
        file, kind, values, on=manner.on, priority=manner.priority, is_preview=is_preview, reporter=reporter
    )
    spec = resolved.spec
    if spec.cluster is None and (manner.yaml or manner.context or manner.dry_run == "server"):
        raise SpecError("--yaml, --context and --dry-run=server are for jobs on Kubernetes; give --image_name, too")
    if is_preview:
        return _preview_job(spec, manner)
    if spec.cluster is not None:
        return _run_on_cluster(spec, manner)
    if resolved.queue is not None:
        return _submit_to_queue(spec, resolved.queue, manner.priority or 0, reporter)
    code = _run_locally(spec, reporter, is_detached=manner.detach)
    # A job that is resumed by its name may have come from a config, too.
    if kind is JobKind.TRAINING and not manner.detach and (file is None or resolved.is_ctr_config):
        from elasticdl.ctr.report import generation

        generation.report_finished_job(spec.name, file, current_command_line(), reporter)
    return code


def _preview_job(spec: JobSpec, manner: SubmitOptions) -> int:
    """Prints what --dry-run or --yaml asks for; returns 1 if the API server refuses an object."""
    if manner.dry_run == "client":
        import yaml

        click.echo(yaml.safe_dump(spec.model_dump(mode="json", exclude_none=True), sort_keys=False), nl=False)
        return 0
    from elasticdl.jobs.kubernetes import submission

    if manner.yaml:
        click.echo(submission.render_yaml(spec), nl=False)
        return 0
    refused = 0
    for verdict in submission.dry_run_on_server(spec, manner.context):
        click.echo(f"{verdict.label}: {verdict.message}")
        refused += verdict.is_refused
    return 1 if refused else 0


def _run_on_cluster(spec: JobSpec, manner: SubmitOptions) -> int:
    from elasticdl.cli.screens.progress_bars import TerminalReporter
    from elasticdl.jobs.kubernetes import cluster_job, submission

    cluster, spec = submission.submit_to_cluster(spec, manner.context, TerminalReporter(is_error=True))
    assert spec.cluster is not None
    namespace = spec.cluster.namespace
    where = f"in namespace {namespace} of context {cluster.context or 'this pod'}"
    if manner.detach:
        click.echo(detached_message(spec.name, where))
        return 0
    from rich.console import Console

    from elasticdl.cli import attach

    console = Console()
    console.print(f"job {spec.name} {where}", highlight=False, markup=False, soft_wrap=True)
    with cluster_job.watch_cluster_job(cluster, namespace, spec.name) as watched:
        return attach.attach_terminal(watched, console)


def _submit_to_queue(spec: JobSpec, queue: str, priority: int, reporter: SubmissionReporter) -> int:
    from elasticdl.jobs import queueing

    if queueing.enqueue_job(spec, queue, priority, reporter):
        decision = queueing.await_decision(spec.name)
        undecided = f"job {spec.name} is queued; the scheduler has not decided on it yet"
        click.echo(f"job {spec.name} is queued: {decision}" if decision else undecided)
    else:
        click.echo(f"job {spec.name} is queued, and waits: {queueing.NO_SCHEDULER}")
    click.echo(f"  look at it   elasticdl status {spec.name}\n  end it       elasticdl stop {spec.name}")
    return 0


def _run_locally(spec: JobSpec, reporter: SubmissionReporter, *, is_detached: bool) -> int:
    from elasticdl.jobs import history, submission

    if is_detached:
        directory = submission.launch_detached(spec, reporter)
        click.echo(detached_message(spec.name, f"in {directory.root}"))
        return 0
    from rich.console import Console

    from elasticdl.cli import attach
    from elasticdl.jobs.local import WatchedLocalJob
    from elasticdl.launcher.local import processes

    console = Console()
    directory = submission.prepare_directory(spec, reporter)
    reading, writing = os.pipe()
    try:
        pid = processes.start_launcher(directory, attached_fd=reading)
        os.close(reading)
        earlier = history.read_earlier_run(directory) if spec.checkpoint.resume else None
        resumption = f", resumed {earlier.describe()}" if earlier else ""
        reporter.say(f"job {spec.name} in {directory.root}{resumption}")
        return attach.attach_terminal(WatchedLocalJob(directory), console, pid)
    finally:
        # Whatever ends us, the end of this pipe tells the launcher to stop the job.
        os.close(writing)


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
