"""`elasticdl logs`."""

from __future__ import annotations

import click

from elasticdl import jobs
from elasticdl.cli.arguments import job_argument, location_options
from elasticdl.cli.command import Command
from elasticdl.jobs.lookup import LocationOptions

EXAMPLES = """
elasticdl logs mnist
elasticdl logs mnist --worker 2 -f
elasticdl logs ctr --ps 0
elasticdl logs mnist --master --on kubernetes
"""


@click.command("logs", cls=Command, examples=EXAMPLES)
@job_argument(is_optional=True)
@click.option("--worker", metavar="W", help="Show only this worker: worker-2, or 2.")
@click.option("--ps", metavar="P", help="Show only this parameter server: ps-0, or 0.")
@click.option("--master", is_flag=True, help="Show only the master.")
@click.option("--launcher", is_flag=True, help="Show only the launcher of a job on this machine.")
@click.option("-f", "--follow", is_flag=True, help="Follow the logs until the job is over.")
@location_options
def command(
    job: str, worker: str | None, ps: str | None, master: bool, launcher: bool, follow: bool, location: LocationOptions
) -> None:
    """Show what the processes of JOB wrote: of all processes, each line with its writer, or of one.

    Without JOB: the newest job.
    """
    if sum((worker is not None, ps is not None, master, launcher)) > 1:
        raise click.UsageError("--worker, --ps, --master and --launcher exclude each other")
    replica = "master" if master else "launcher" if launcher else None
    for role, word in (("worker", worker), ("ps", ps)):
        if word:
            replica = word if word.startswith(f"{role}-") else f"{role}-{word}"
    for writer, line in jobs.find(job, **location).logs(replica, follow):
        click.echo(line if replica else f"{writer:>9} | {line}")
