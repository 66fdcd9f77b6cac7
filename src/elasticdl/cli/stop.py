"""`elasticdl stop`."""

from __future__ import annotations

import click

from elasticdl.cli import home
from elasticdl.cli.command import Command

EXAMPLES = """
elasticdl stop mnist
elasticdl stop mnist --now
"""


@click.command("stop", cls=Command, examples=EXAMPLES)
@click.argument("job")
@click.option("--now", is_flag=True, help="Kill all its processes at once, without a checkpoint.")
def command(job: str, now: bool) -> None:
    """Stop JOB: the running step ends, a checkpoint is written, all processes end.

    Go on later with `elasticdl train --resume --job_name=JOB`.
    """
    directory = home.find(job)
    if now:
        from elasticdl.cli import attach

        was_over = directory.result.exists()
        attach.kill(directory)
        click.echo(f"{job}: was over already" if was_over else f"{job}: killed")
        return
    from elasticdl.cli.running import client_of

    with client_of(directory) as client:
        click.echo(client.stop(at_once=False, reason="elasticdl stop") or f"{job}: stopping, with a checkpoint")
