"""`elasticdl zoo`."""

from __future__ import annotations

from pathlib import Path

import click

from elasticdl.cli.command import Command

EXAMPLES = """
elasticdl zoo init my-zoo
"""


@click.group("zoo")
def command() -> None:
    """Make a starter model that trains at once."""


@command.command("init", cls=Command, examples=EXAMPLES)
@click.argument("directory", type=click.Path(path_type=Path))
def init(directory: Path) -> None:
    """Write a starter model with its data and a job.yaml into DIRECTORY."""
    from elasticdl.zoo import init as starter

    click.echo(starter.init(directory))
