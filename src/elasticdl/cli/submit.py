"""What train, run, evaluate and predict share: their options, the submission, and the exit code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elasticdl.cli.arguments import on_option
from elasticdl.cli.command import Decorated, JobOption, current_command_line
from elasticdl.errors import SpecError
from elasticdl.spec import JobKind

if TYPE_CHECKING:
    from elasticdl.jobs import Job
    from elasticdl.jobs.interface import SubmissionReporter
    from elasticdl.jobs.submission import ResolvedJob


DRY_RUNS = ("client", "server")


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """What the command does with a job, beside what the job is."""

    on: str = ""  # local or kubernetes; "": as the job says
    context: str = ""
    dry_run: str = ""  # client: print the job; server: let the API server check its objects
    yaml: bool = False
    detach: bool = False
    priority: int | None = None  # in the queue of this machine

    @classmethod
    def pop_from(cls, values: dict[str, Any]) -> SubmitOptions:
        """Takes the options of `submit_options` out of the values of a command."""
        return cls(
            on=values.pop("on") or "",
            context=values.pop("context") or "",
            dry_run=values.pop("dry_run") or "",
            yaml=values.pop("yaml"),
            detach=values.pop("detach"),
            priority=values.pop("priority"),
        )


def submit_options(function: Decorated) -> Decorated:
    """Adds --on, --context, --dry-run, --yaml, --detach and --priority: see `SubmitOptions`."""

    def option(*flags: str, section: str = "Job", **more: Any) -> Callable[[Decorated], Decorated]:
        return click.option(*flags, cls=JobOption, section=section, **more)

    kubernetes = "Kubernetes"
    dry_run_help = (
        "Print the resolved job as YAML, run nothing. --dry-run=server: let the API server check each of its objects."
    )
    priority_help = "With --queue: jobs of greater priority go first and take workers from others. Default: 0."
    yaml_help = "Print the objects that would be created on Kubernetes, without secrets, and run nothing."
    for decorate in (
        option("--priority", type=int, metavar="N", help=priority_help),
        option("--detach", is_flag=True, help="Return once the job is accepted; it runs on by itself."),
        option("--dry-run", type=click.Choice(DRY_RUNS), bare_value=DRY_RUNS[0], help=dry_run_help),
        option("--context", metavar="NAME", section=kubernetes, help="Context of the kubeconfig. Default: current."),
        option("--yaml", is_flag=True, section=kubernetes, help=yaml_help),
        on_option("Where the job runs. Default: on Kubernetes if it has an image.", cls=JobOption, section=kubernetes),
    ):
        function = decorate(function)
    return function


def run_submit_verb(kind: JobKind, file: Path | None, values: dict[str, Any]) -> int:
    """Runs the described job. Returns the exit code of the command."""
    from elasticdl import api
    from elasticdl.cli.screens.progress_bars import TerminalReporter
    from elasticdl.jobs.description import JobRequest

    submit = SubmitOptions.pop_from(values)
    is_preview = bool(submit.dry_run or submit.yaml)
    reporter = TerminalReporter()
    request = JobRequest(kind, {}, values, on=submit.on, context=submit.context, priority=submit.priority)
    job = api.resolve_job(file, request, reporter, is_preview=is_preview)
    if is_preview:
        return _preview_job(job, submit)
    if job.queue is not None:
        name = api.launch(job, reporter).name
        click.echo(f"  look at it   elasticdl status {name}\n  end it       elasticdl stop {name}")
        return 0
    if submit.detach:
        click.echo(detached_message(api.launch(job, reporter)))
        return 0
    code = _run_attached(job, reporter)
    # A job that is resumed by its name may have come from a config, too.
    if kind is JobKind.TRAINING and job.spec.cluster is None and (file is None or job.config_file is not None):
        from elasticdl.ctr.report import generation

        generation.report_finished_job(job.spec.name, file, current_command_line(), reporter)
    return code


def _preview_job(job: ResolvedJob, submit: SubmitOptions) -> int:
    """Prints what --dry-run or --yaml asks for. Returns 1 if the API server refuses an object."""
    if job.spec.cluster is None and (submit.yaml or submit.dry_run == "server"):
        raise SpecError("--yaml and --dry-run=server are for jobs on Kubernetes; give --image_name, too")
    if submit.dry_run == "client":
        import yaml

        click.echo(yaml.safe_dump(job.spec.model_dump(mode="json", exclude_none=True), sort_keys=False), nl=False)
        return 0
    from elasticdl.jobs.kubernetes import submission

    if submit.yaml:
        click.echo(submission.render_yaml(job.spec), nl=False)
        return 0
    refused = 0
    for verdict in submission.dry_run_on_server(job.spec, job.context):
        click.echo(f"{verdict.label}: {verdict.message}")
        refused += verdict.is_refused
    return 1 if refused else 0


def _run_attached(job: ResolvedJob, reporter: SubmissionReporter) -> int:
    from rich.console import Console

    from elasticdl.cli import attach
    from elasticdl.jobs import submission

    with submission.launch_attached(job, reporter) as watched:
        return attach.attach_terminal(watched, Console())


def detached_message(job: Job) -> str:
    """Says how to look after a job that runs on after the command."""
    return "\n".join(
        (
            f"job {job.name} runs on by itself {job.place}",
            f"  look at it   elasticdl status {job.name}",
            f"  read along   elasticdl logs {job.name} -f",
            f"  change it    elasticdl scale {job.name} --workers N",
            f"  end it       elasticdl stop {job.name}",
        )
    )
