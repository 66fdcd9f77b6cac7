"""`elasticdl stop`."""

from __future__ import annotations

import click

from elasticdl.cli.arguments import job_argument, location_options
from elasticdl.cli.command import Command
from elasticdl.errors import SpecError
from elasticdl.jobs.home import LAST
from elasticdl.jobs.lookup import JobLocation, find_job

EXAMPLES = """
elasticdl stop mnist
elasticdl stop mnist --now
elasticdl stop mnist --delete
"""


@click.command("stop", cls=Command, examples=EXAMPLES)
@job_argument()
@click.option("--now", is_flag=True, help="Kill all its processes at once, without a checkpoint.")
@click.option("--delete", is_flag=True, help="Kill it, and delete all that is left of it: logs, checkpoints, name.")
@location_options
def command(job: str, now: bool, delete: bool, location: JobLocation) -> None:
    """Stop JOB: the running step ends, a checkpoint is written, all processes end.

    Go on later with `elasticdl train --resume --job_name=JOB`. A job that waits in the queue is taken out of it. On
    Kubernetes --now and --delete are the same. What a job wrote elsewhere, as to --output, is never deleted.
    """
    backend = find_job(job, location)
    if delete and job not in (backend.name, LAST):
        raise SpecError(f"--delete removes a job for good: write its whole name, {backend.name}")
    if now or delete:
        click.echo(backend.kill(delete=delete))
        return
    click.echo(backend.stop() or f"{backend.name}: stopping, with a checkpoint")
