"""`elasticdl stop`."""

from __future__ import annotations

import click

from elasticdl import jobs
from elasticdl.cli.arguments import job_argument, location_options
from elasticdl.cli.command import Command
from elasticdl.errors import SpecError
from elasticdl.jobs.home import LAST
from elasticdl.jobs.lookup import LocationOptions

EXAMPLES = """
elasticdl stop mnist
elasticdl stop mnist --now
elasticdl stop mnist --delete
"""


@click.command("stop", cls=Command, examples=EXAMPLES)
@job_argument()
@click.option("--now", is_flag=True, help="Kill all processes of the job at once, without a checkpoint.")
@click.option("--delete", is_flag=True, help="Kill the job and delete its directory: logs, checkpoints and name.")
@location_options
def command(job: str, now: bool, delete: bool, location: LocationOptions) -> None:
    """Stop JOB: the running step ends, a checkpoint is written, all processes end.

    Resume it later with `elasticdl train --resume --job_name=JOB`. A job that waits in the queue is taken out of it. On
    Kubernetes, --now and --delete are the same. What a job wrote elsewhere, such as --output, is never deleted.
    """
    found_job = jobs.find(job, **location)
    if delete and job not in (found_job.name, LAST):
        raise SpecError(f"--delete removes a job for good: write its whole name, {found_job.name}")
    if now or delete:
        click.echo(found_job.kill(delete=delete))
    else:
        click.echo(found_job.stop())
