"""`elasticdl scale`."""

from __future__ import annotations

import click

from elasticdl import jobs
from elasticdl.cli.arguments import job_argument, location_options
from elasticdl.cli.command import Command
from elasticdl.jobs.lookup import LocationOptions

EXAMPLES = """
elasticdl scale mnist --workers 4
elasticdl scale ctr --ps 3
elasticdl scale ctr --workers 4 --ps 3
elasticdl scale mnist --batch_scale 4
"""


@click.command("scale", cls=Command, examples=EXAMPLES)
@job_argument()
@click.option("--workers", "--num_workers", "workers", type=int, metavar="N", help="Number of workers.")
@click.option("--ps", "--num_ps_pods", "ps", type=int, metavar="N", help="Number of parameter servers (ps).")
@click.option(
    "--batch_scale",
    type=int,
    metavar="K",
    help="Global batches that make one update, for a job with --adaptive_batch.",
)
@location_options
def command(job: str, workers: int | None, ps: int | None, batch_scale: int | None, location: LocationOptions) -> None:
    """Change the number of workers, within the job's min and max, the number of ps, or the scale of the batch.

    Training goes on meanwhile. New workers join when they are ready; surplus workers leave after a step. Rows move to
    new ps, and away from surplus ps. With --batch_scale, K global batches make one update from now on, and the learning
    rate follows.
    """
    click.echo(jobs.find(job, **location).scale(workers, ps, batch_scale))
