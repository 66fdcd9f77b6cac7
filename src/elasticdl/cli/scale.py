"""`elasticdl scale`."""

from __future__ import annotations

import click

from elasticdl.cli.command import Command
from elasticdl.cli.place import Place, find, place_options

EXAMPLES = """
elasticdl scale mnist --workers 4
elasticdl scale ctr --ps 3
elasticdl scale ctr --workers 4 --ps 3
"""


@click.command("scale", cls=Command, examples=EXAMPLES)
@click.argument("job")
@click.option("--workers", "--num_workers", "workers", type=click.IntRange(min=1), metavar="N", help="Workers.")
@click.option("--ps", "--num_ps_pods", "ps", type=click.IntRange(min=1), metavar="N", help="Parameter servers.")
@place_options
def command(job: str, workers: int | None, ps: int | None, place: Place) -> None:
    """Wish for another number of workers, within the job's min and max, or of ps, or of both.

    Training goes on meanwhile; new workers join when they are ready, those too many leave after a step. Rows move to
    new ps, and away from those that are too many.
    """
    if workers is None and ps is None:
        raise click.UsageError("how many? Give --workers N, --ps N, or both")
    click.echo(find(job, place).scale(workers or 0, ps or 0))
