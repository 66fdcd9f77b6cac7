"""`elasticdl timeline`, and the figure that every job leaves at its end."""

from __future__ import annotations

from pathlib import Path

import click

from elasticdl.cli.arguments import job_argument, location_options
from elasticdl.cli.command import Command
from elasticdl.jobs.interface import THIS_MACHINE
from elasticdl.jobs.lookup import JobLocation, find_job

EXAMPLES = """
elasticdl timeline mnist
elasticdl timeline mnist -o mnist.png
"""


@click.command("timeline", cls=Command, examples=EXAMPLES)
@job_argument(is_optional=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="PNG", help="Default: in the job directory.")
@location_options
def command(job: str, output: Path | None, location: JobLocation) -> None:
    """Draw who worked when, how each worker ended, the loss and the speed, as a PNG.

    Of a job on Kubernetes: its newest events, by default into JOB.png here. Without JOB: the newest job.
    """
    from elasticdl.jobs import timeline

    backend = find_job(job, location)
    with backend.open_directory() as directory:
        path = output or (directory.timeline if backend.location == THIS_MACHINE else Path(f"{backend.name}.png"))
        if not path.absolute().parent.is_dir():
            raise click.UsageError(f"--output: no directory {path.absolute().parent}")
        timeline.draw_timeline(directory, path)
    click.echo(path)
