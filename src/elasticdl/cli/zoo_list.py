"""`elasticdl zoo list` and `elasticdl zoo show`."""

from __future__ import annotations

import json

import click

from elasticdl.cli.command import Command

LIST_EXAMPLES = """
elasticdl zoo list
elasticdl zoo list --json
"""
SHOW_EXAMPLES = """
elasticdl zoo show deepfm
elasticdl zoo show digits --json
"""


@click.command("list", cls=Command, examples=LIST_EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="For scripts: a list with name, group, framework, words, paper.")
def list_command(as_json: bool) -> None:
    """List all models that come with ElasticDL."""
    from elasticdl.zoo import catalog

    if as_json:
        click.echo(json.dumps([one.document() for one in catalog.MODELS], indent=1, ensure_ascii=False))
        return
    names = max(len(one.name) for one in catalog.MODELS)
    words = max(len(one.words) for one in catalog.MODELS)
    for title, models in catalog.groups():
        click.echo(title)
        for one in models:
            click.echo(f"  {one.name:<{names}}  {one.words:<{words}}  {one.paper}".rstrip())
    click.echo("\n`elasticdl zoo show NAME` tells its parameters and how to train it")


@click.command("show", cls=Command, examples=SHOW_EXAMPLES)
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="For scripts: everything, as one JSON document.")
def show_command(name: str, as_json: bool) -> None:
    """Tell of the model NAME: its parameters, its paper, its file, and the commands that train it."""
    from elasticdl.zoo import catalog

    model = catalog.named(name)
    if as_json:
        more = {"params": model.params, "file": str(model.path), "commands": model.commands}
        click.echo(json.dumps(model.document() | more, indent=1, ensure_ascii=False))
        return
    click.echo(f"{model.name}: {model.words}")
    told = {"paper": model.paper, "framework": model.framework, "file": str(model.path)}
    for key, value in told.items():
        if value:
            click.echo(f"  {key:<10} {value}")
    click.echo("\nparameters, with their defaults" if model.params else "\nno parameters")
    for key, value in model.params.items():
        click.echo(f"  {key:<10} {value}")
    click.echo("\ntrain it")
    for command in model.commands:
        click.echo(f"  {command}")
