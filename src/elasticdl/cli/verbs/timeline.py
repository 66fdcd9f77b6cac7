"""`elasticdl timeline`, and the figure that every job leaves at its end."""

from __future__ import annotations

from pathlib import Path

import click

from elasticdl import jobs
from elasticdl.cli.arguments import job_argument, location_options
from elasticdl.cli.command import Command
from elasticdl.jobs.lookup import LocationOptions

EXAMPLES = """
elasticdl timeline mnist
elasticdl timeline mnist -o mnist.png
"""


@click.command("timeline", cls=Command, examples=EXAMPLES)
@job_argument(is_optional=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="PNG",
    help="The file to write. Default: timeline.png in the job directory.",
)
@location_options
def command(job: str, output: Path | None, location: LocationOptions) -> None:
    """Draw when each worker trained and how it ended, the loss and the speed, as a PNG.

    For a job on Kubernetes, its newest events are drawn, by default into JOB.png here. Without JOB: the newest job.
    """
    click.echo(jobs.find(job, **location).draw_timeline(output))
