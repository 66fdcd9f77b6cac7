"""`elasticdl status`."""

from __future__ import annotations

import json

import click

from elasticdl import jobs
from elasticdl.cli.arguments import job_argument, location_options
from elasticdl.cli.command import Command
from elasticdl.jobs.lookup import LocationOptions
from elasticdl.spec.directory import JobDirectory

EXAMPLES = """
elasticdl status mnist
elasticdl status mnist --json
elasticdl status mnist --events
elasticdl status mnist --on kubernetes --namespace team-a
"""


@click.command("status", cls=Command, examples=EXAMPLES)
@job_argument(is_optional=True)
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON document, for scripts.")
@click.option("--events", "all_events", is_flag=True, help="Print every event since the start, not only the newest.")
@location_options
def command(job: str, as_json: bool, all_events: bool, location: LocationOptions) -> None:
    """Show the status of JOB: progress, workers, and events with their reasons and costs.

    Works for a job that is over, too. Without JOB: the newest job.
    """
    from elasticdl.cli.screens import job_panel, job_summary, plain_lines
    from elasticdl.jobs import documents

    found_job = jobs.find(job, **location)
    status = found_job.status
    if as_json:
        events = [documents.event_document(event) for event in found_job.events() or status.events]
        click.echo(json.dumps(found_job.status_document(status) | {"events": events}, indent=1))
        return
    if all_events:
        for event in found_job.events() or status.events:
            click.echo(plain_lines.event_line(event))
        return
    from rich.console import Console

    console = Console()
    console.print(job_panel.job_panel(status))
    if status.is_over:
        job_summary.print_summary(status, JobDirectory(found_job.directory) if found_job.directory else None, console)
