"""`elasticdl zoo push`."""

from __future__ import annotations

import click

from elasticdl.cli.command import Command
from elasticdl.errors import SpecError

EXAMPLES = """
elasticdl zoo push registry.example.com/mnist:1
elasticdl zoo push registry.example.com/mnist:1 -- --tls-verify=false
"""


@click.command("push", cls=Command, examples=EXAMPLES)
@click.argument("image", metavar="NAME:TAG")
@click.option("--engine", metavar="NAME", help="docker, podman or buildah. Default: the first of them that answers.")
@click.option("--dry-run", is_flag=True, help="Print the engine's command and run nothing.")
@click.argument("passed", nargs=-1, metavar="[-- ENGINE OPTIONS]")
def command(image: str, engine: str | None, dry_run: bool, passed: tuple[str, ...]) -> None:
    """Push an image to the registry in its name, as whom the engine is logged in."""
    import shlex

    from elasticdl.cli.engine_view import engine_named, showing
    from elasticdl.image.following import follow
    from elasticdl.image.name import check_registry

    check_registry(image)
    found = engine_named(engine)
    if dry_run:
        click.echo(shlex.join(found.push(image, passed)))
        return
    if not found.has(image):
        raise SpecError(f"{found.name} has no image {image}; build it first: elasticdl zoo build DIR --image {image}")
    with showing(f"pushing {image} with {found.name}") as show:
        follow(found.push(image, passed), show)
    click.echo(f"pushed {image}")
