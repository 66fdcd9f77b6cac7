"""`elasticdl run`."""

from __future__ import annotations

from typing import Any

import click

from elasticdl.cli.command import Command, JobOption, job_options
from elasticdl.cli.submit import run_submit_verb, submit_options
from elasticdl.spec import JobKind

EXAMPLES = """
elasticdl run --workers 1:4 train.py --epochs 3
elasticdl run --workers 2 --checkpoint_steps 100 train.py
elasticdl run --compat ddp --workers 2 train_ddp.py
elasticdl run --resume --job_name=train-20261115-1307-x3
"""

FIRST_OPTIONS = ("workers", "checkpoint_steps", "device", "job_name", "resume", "detach")


@click.command(
    "run",
    cls=Command,
    examples=EXAMPLES,
    first_options=FIRST_OPTIONS,
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--workers",
    cls=JobOption,
    section="Workers",
    metavar="N or MIN:MAX",
    help="Number of workers. With MIN:MAX, the job asks for MAX and waits only for MIN.",
)
@submit_options
@job_options("run")
@click.argument("script", type=click.Path(), required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(workers: str | None, script: str | None, arguments: tuple[str, ...], **values: Any) -> int:
    """Run your own training SCRIPT elastically, with its ARGUMENTS.

    Options of elasticdl come before SCRIPT; everything after it is passed to the script.
    The same script also runs alone, as `python SCRIPT`. With --resume, SCRIPT is that of the earlier run.
    With --compat ddp, a script for torchrun runs unmodified: it is restarted whenever the workers change.
    """
    if script is None and not values["resume"]:
        raise click.UsageError("which script? Give it after the options: elasticdl run --workers 2 train.py")
    return run_submit_verb(
        JobKind.SCRIPT, None, {**values, "script": script, "arguments": arguments, "workers": workers}
    )
