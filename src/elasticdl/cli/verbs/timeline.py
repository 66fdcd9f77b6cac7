"""`elasticdl timeline`, and the figure that every job leaves at its end."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from elasticdl.cli.arguments import job_argument
from elasticdl.cli.command import Command
from elasticdl.jobs import history
from elasticdl.jobs.local import THIS_MACHINE
from elasticdl.jobs.lookup import JobLocation, find_job, location_options
from elasticdl.reporting import fonts
from elasticdl.spec.directory import JobDirectory

EXAMPLES = """
elasticdl timeline mnist
elasticdl timeline mnist -o mnist.png
"""


@click.command("timeline", cls=Command, examples=EXAMPLES)
@job_argument(is_optional=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="PNG", help="Default: in the job directory.")
@location_options
def command(job: str, output: Path | None, place: JobLocation) -> None:
    """Draw who worked when, how each worker ended, the loss and the speed, as a PNG.

    Of a job on Kubernetes: its newest events, by default into JOB.png here. Without JOB: the newest job.
    """
    found = find_job(job, place)
    with found.open_directory() as directory:
        path = output or (directory.timeline if found.location == THIS_MACHINE else Path(f"{found.name}.png"))
        if not path.absolute().parent.is_dir():
            raise click.UsageError(f"--output: no directory {path.absolute().parent}")
        draw_timeline(directory, path)
    click.echo(path)


def draw_timeline(directory: JobDirectory, path: Path) -> None:
    """Draw the job as it is known now."""
    fonts.use_writable_font_cache()
    from elasticdl.jobs import timeline, timeline_figure

    told = timeline.build_timeline(
        directory.root.name,
        history.read_events(directory),
        timeline.read_curves(directory),
        history.status_from_files(directory, is_alive=True).started_at,
    )
    timeline_figure.draw_figure(told, path)


def try_draw_timeline(directory: JobDirectory) -> None:
    """At the end of a job: a picture that cannot be drawn is a pity, not a failure."""
    try:
        draw_timeline(directory, directory.timeline)
    except (OSError, ValueError) as exc:
        logging.getLogger("elasticdl").warning("no timeline: %s", exc)
