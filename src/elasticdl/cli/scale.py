"""`elasticdl scale`."""

from __future__ import annotations

import click

from elasticdl.cli import home
from elasticdl.cli.command import Command

EXAMPLES = """
elasticdl scale mnist --workers 4
"""


@click.command("scale", cls=Command, examples=EXAMPLES)
@click.argument("job")
@click.option("--workers", "--num_workers", "workers", type=click.IntRange(min=1), required=True, metavar="N")
def command(job: str, workers: int) -> None:
    """Wish for another number of workers, within the job's min and max.

    Training goes on meanwhile; newcomers join when they are ready, those too many leave after a step.
    """
    from elasticdl.cli.running import client_of

    with client_of(home.find(job)) as client:
        click.echo(client.scale(workers) or f"{job}: {workers} workers wished for")
