"""`elasticdl zoo build`."""

from __future__ import annotations

from pathlib import Path

import click

from elasticdl.cli.command import Command
from elasticdl.errors import SpecError

EXAMPLES = """
elasticdl zoo build my-zoo --image registry.example.com/mnist:1
elasticdl zoo build my-zoo --image mnist:1 --base registry.example.com/elasticdl:0.3.0-gpu
elasticdl zoo build my-zoo --image mnist:1 --engine podman -- --network=host
elasticdl zoo build --image registry.example.com/elasticdl-operator:1 --extra operator
elasticdl zoo build my-zoo --image mnist:1 --dry-run
"""


@click.command("build", cls=Command, examples=EXAMPLES)
@click.argument("directory", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
@click.option("--image", required=True, metavar="NAME:TAG", help="Name of the image.")
@click.option("--engine", metavar="NAME", help="docker, podman or buildah. Default: the first of them that answers.")
@click.option("--base", metavar="IMAGE", help="Image to build on. Default: that of this ElasticDL, built if need be.")
@click.option(
    "--extra",
    "extras",
    multiple=True,
    metavar="NAME",
    help="What the image of ElasticDL holds: torch, tensorflow, operator, scheduler. Default: what the models import.",
)
@click.option("--build-arg", "pairs", multiple=True, metavar="A=B", help="A build argument; see docs/images.md.")
@click.option("--dry-run", is_flag=True, help="Print Dockerfile and commands, and build nothing.")
@click.argument("passed", nargs=-1, metavar="[-- ENGINE OPTIONS]")
def command(
    directory: Path | None,
    image: str,
    engine: str | None,
    base: str | None,
    extras: tuple[str, ...],
    pairs: tuple[str, ...],
    dry_run: bool,
    passed: tuple[str, ...],
) -> None:
    """Make an image of the model directory DIR, for `elasticdl train --image_name`.

    In the image DIR is /model_zoo, so --model_zoo=model_zoo means it; its requirements.txt is installed.
    Without DIR the image of ElasticDL itself is made. What follows -- goes to the engine's build as it is.
    """
    import shlex

    from elasticdl.cli.engine_view import engine_named, showing
    from elasticdl.image import build, name, pinning, plan, wheel
    from elasticdl.image.survey import survey

    # After -- the first word is an option of the engine, never DIR.
    if directory is not None and str(directory).startswith("-"):
        directory, passed = None, (str(directory), *passed)
    name.check(image)
    arguments = plan.build_arguments(pairs)
    if base is not None and (extras or directory is None):
        raise SpecError("--base is an image with ElasticDL in it: it goes with a DIR, and without --extra")
    found = survey(directory) if directory is not None else None
    wished = extras or (found.framework if found else "torch",)
    shipped = plan.shipped(wished, arguments, name="" if found else image)
    engines = engine_named(engine)
    # A checkout changes under one version number; the engine's cache spares all but the wheel.
    is_due = base is None and (found is None or wheel.checkout() is not None or not engines.has(shipped.name))
    if dry_run:
        if is_due:
            place = Path("CONTEXT")
            click.echo(shlex.join(build.shipped_command(engines, shipped, place, passed)))
        if directory is not None and found is not None:
            click.echo(f"\n{plan.dockerfile(base or shipped.name, found)}")
            dockerfile = Path("DOCKERFILE")
            click.echo(
                shlex.join(
                    engines.build(image, dockerfile=dockerfile, context=directory, arguments=arguments, passed=passed)
                )
            )
        return
    if is_due:
        shipped = plan.Shipped(shipped.name, pinning.pin(shipped.arguments))
        click.echo(f"upon {shipped.arguments['BASE']}", err=True)
        with showing(f"building {shipped.name} with {engines.name}") as show:
            build.build_shipped(engines, shipped, passed, show)
    if directory is None or found is None:
        click.echo(f"built {image}")
        return
    if written := build.write_ignore_file(directory, found):
        click.echo(written, err=True)
    content = plan.dockerfile(base or shipped.name, found)
    with showing(f"building {image} with {engines.name}") as show:
        build.build_model(engines, image, directory, content, arguments, passed, show)
    click.echo(f"built {image}; train with it:\n\n    {plan.next_command(image, found)}")
