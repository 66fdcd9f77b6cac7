"""`elasticdl timeline`, and the picture that every job leaves at its end."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from elasticdl.cli import fonts, history
from elasticdl.cli.command import Command
from elasticdl.cli.job_argument import job_argument
from elasticdl.cli.local_job import HERE
from elasticdl.cli.place import Place, find, place_options
from elasticdl.spec.directory import JobDirectory

EXAMPLES = """
elasticdl timeline mnist
elasticdl timeline mnist -o mnist.png
"""


@click.command("timeline", cls=Command, examples=EXAMPLES)
@job_argument(is_optional=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="PNG", help="Default: in the job directory.")
@place_options
def command(job: str, output: Path | None, place: Place) -> None:
    """Draw who worked when, how each worker ended, the loss and the speed, as a PNG.

    Of a job on Kubernetes: its newest events, by default into JOB.png here. Without JOB: the newest job.
    """
    found = find(job, place)
    with found.files() as directory:
        path = output or (directory.timeline if found.where == HERE else Path(f"{found.name}.png"))
        if not path.absolute().parent.is_dir():
            raise click.UsageError(f"--output: no directory {path.absolute().parent}")
        draw(directory, path)
    click.echo(path)


def draw(directory: JobDirectory, path: Path) -> None:
    """Draw the job as it is known now."""
    fonts.settle()
    from elasticdl.cli import chart, story

    told = story.tell(
        directory.root.name,
        history.read_events(directory),
        story.read_curves(directory),
        history.status(directory, is_alive=True).started_at,
    )
    chart.draw(told, path)


def draw_quietly(directory: JobDirectory) -> None:
    """At the end of a job: a picture that cannot be drawn is a pity, not a failure."""
    try:
        draw(directory, directory.timeline)
    except (OSError, ValueError) as exc:
        logging.getLogger("elasticdl").warning("no timeline: %s", exc)
