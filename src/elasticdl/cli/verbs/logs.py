"""`elasticdl logs`."""

from __future__ import annotations

import click

from elasticdl.cli.arguments import job_argument, location_options
from elasticdl.cli.command import Command
from elasticdl.errors import SpecError
from elasticdl.jobs.interface import JobBackend
from elasticdl.jobs.lookup import JobLocation, find_job
from elasticdl.spelling import did_you_mean

EXAMPLES = """
elasticdl logs mnist
elasticdl logs mnist --worker 2 -f
elasticdl logs ctr --ps 0
elasticdl logs mnist --master --on kubernetes
"""


@click.command("logs", cls=Command, examples=EXAMPLES)
@job_argument(is_optional=True)
@click.option("--worker", metavar="W", help="Only this worker: worker-2, or 2.")
@click.option("--ps", metavar="P", help="Only this parameter server: ps-0, or 0.")
@click.option("--master", is_flag=True, help="Only the master.")
@click.option("--launcher", is_flag=True, help="Only the launcher of a job on this machine.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is over.")
@location_options
def command(
    job: str, worker: str | None, ps: str | None, master: bool, launcher: bool, follow: bool, location: JobLocation
) -> None:
    """Show what the processes of JOB wrote; all of them, each line with its writer, unless one is named.

    Without JOB: the newest job.
    """
    if sum((worker is not None, ps is not None, master, launcher)) > 1:
        raise click.UsageError("--worker, --ps, --master and --launcher exclude each other")
    backend = find_job(job, location)
    replica = "master" if master else "launcher" if launcher else ""
    for role, word in (("worker", worker), ("ps", ps)):
        replica = _resolve_replica(backend, role, word) if word else replica
    for writer, line in backend.logs(replica, follow):
        click.echo(line if replica else f"{writer:>9} | {line}")


def _resolve_replica(job: JobBackend, role: str, word: str) -> str:
    """The worker or ps meant: by its id, or by its number alone."""
    replicas = job.logged_replicas(role)
    name = word if word.startswith(f"{role}-") else f"{role}-{word}"
    if name not in replicas:
        there = f"; there are {', '.join(replicas)}" if replicas else f"; no {role} has started yet"
        raise SpecError(f"job {job.name!r} has no {name}" + did_you_mean(name, replicas, there))
    return name
