"""`elasticdl zoo`: init here; list and show, build and push in files of their own."""

from __future__ import annotations

from pathlib import Path

import click

from elasticdl.cli import zoo_build, zoo_list, zoo_push
from elasticdl.cli.command import Command

EXAMPLES = """
elasticdl zoo init my-zoo
"""


@click.group("zoo")
def command() -> None:
    """See the models there are, make a starter, and images of models for a cluster."""


@command.command("init", cls=Command, examples=EXAMPLES)
@click.argument("directory", type=click.Path(path_type=Path))
def init(directory: Path) -> None:
    """Write a starter model with its data and a job.yaml into DIRECTORY."""
    from elasticdl.zoo import init as starter

    click.echo(starter.init(directory))


command.add_command(zoo_list.list_command)
command.add_command(zoo_list.show_command)
command.add_command(zoo_build.command)
command.add_command(zoo_push.command)
