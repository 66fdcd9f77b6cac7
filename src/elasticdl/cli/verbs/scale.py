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
@click.option("--workers", "--num_workers", "workers", type=int, metavar="N", help="Workers.")
@click.option("--ps", "--num_ps_pods", "ps", type=int, metavar="N", help="Parameter servers.")
@click.option(
    "--batch_scale",
    type=int,
    metavar="K",
    help="Global batches that make one update (--adaptive_batch).",
)
@location_options
def command(job: str, workers: int | None, ps: int | None, batch_scale: int | None, location: LocationOptions) -> None:
    """Wish for another number of workers, within the job's min and max, or of ps, or of both; or scale the batch.

    Training goes on meanwhile; new workers join when they are ready, those too many leave after a step. Rows move to
    new ps, and away from those that are too many. Of a job that was started with --adaptive_batch, K global batches
    make one update from now on, and its learning rate follows.
    """
    click.echo(jobs.find(job, **location).scale(workers, ps, batch_scale))
