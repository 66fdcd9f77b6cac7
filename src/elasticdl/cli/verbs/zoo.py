"""`elasticdl zoo`: list and show models, write a starter, build and push images of models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from elasticdl.cli.command import Command
from elasticdl.errors import SpecError
from elasticdl.spelling import did_you_mean

if TYPE_CHECKING:
    from elasticdl.image.engine import ContainerEngine

LIST_EXAMPLES = """
elasticdl zoo list
elasticdl zoo list --json
"""
SHOW_EXAMPLES = """
elasticdl zoo show deepfm
elasticdl zoo show digits --json
"""


@click.command("list", cls=Command, examples=LIST_EXAMPLES)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a list with name, group, framework, description and paper, for scripts.",
)
def list_command(as_json: bool) -> None:
    """List all models that come with ElasticDL."""
    from elasticdl.zoo import catalog

    if as_json:
        click.echo(json.dumps([model.to_dict() for model in catalog.MODELS], indent=1, ensure_ascii=False))
        return
    names = max(len(model.name) for model in catalog.MODELS)
    words = max(len(model.description) for model in catalog.MODELS)
    for title, models in catalog.group_models():
        click.echo(title)
        for model in models:
            click.echo(f"  {model.name:<{names}}  {model.description:<{words}}  {model.paper}".rstrip())
    click.echo("\n`elasticdl zoo show NAME` shows its parameters and how to train it")


@click.command("show", cls=Command, examples=SHOW_EXAMPLES)
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON document, for scripts.")
def show_command(name: str, as_json: bool) -> None:
    """Show the model NAME: its parameters, its paper, its file, and the commands that train it."""
    from elasticdl.zoo import catalog

    model = catalog.find_model(name)
    if as_json:
        more = {"params": model.params, "file": str(model.path), "commands": model.commands}
        click.echo(json.dumps(model.to_dict() | more, indent=1, ensure_ascii=False))
        return
    click.echo(f"{model.name}: {model.description}")
    facts = {"paper": model.paper, "framework": model.framework, "file": str(model.path)}
    for key, value in facts.items():
        if value:
            click.echo(f"  {key:<10} {value}")
    click.echo("\nparameters, with their defaults" if model.params else "\nno parameters")
    for key, value in model.params.items():
        click.echo(f"  {key:<10} {value}")
    click.echo("\ntrain it")
    for command in model.commands:
        click.echo(f"  {command}")


BUILD_EXAMPLES = """
elasticdl zoo build my-zoo --image registry.example.com/mnist:1
elasticdl zoo build my-zoo --image mnist:1 --base registry.example.com/elasticdl:0.3.0-gpu
elasticdl zoo build my-zoo --image mnist:1 --engine podman -- --network=host
elasticdl zoo build --image registry.example.com/elasticdl-operator:1 --extra operator
elasticdl zoo build my-zoo --image mnist:1 --dry-run
"""


@click.command("build", cls=Command, examples=BUILD_EXAMPLES)
@click.argument("directory", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
@click.option("--image", required=True, metavar="NAME:TAG", help="Name of the image.")
@click.option("--engine", metavar="NAME", help="docker, podman or buildah. Default: the first of them that answers.")
@click.option(
    "--base", metavar="IMAGE", help="Base image. Default: that of this ElasticDL, which is built if necessary."
)
@click.option(
    "--extra",
    "extras",
    multiple=True,
    metavar="NAME",
    help="Extra of ElasticDL in the image: torch, tensorflow, operator, scheduler. Default: what the models import.",
)
@click.option("--build-arg", "pairs", multiple=True, metavar="A=B", help="A build argument; see docs/images.md.")
@click.option("--dry-run", is_flag=True, help="Print Dockerfile and commands, and build nothing.")
@click.argument("passed", nargs=-1, metavar="[-- ENGINE OPTIONS]")
def build_command(
    directory: Path | None,
    image: str,
    engine: str | None,
    base: str | None,
    extras: tuple[str, ...],
    pairs: tuple[str, ...],
    dry_run: bool,
    passed: tuple[str, ...],
) -> None:
    """Build an image of the model directory DIR, for `elasticdl train --image_name`.

    In the image, DIR is /model_zoo (--model_zoo=model_zoo), and its requirements.txt is installed.
    Without DIR, the image of ElasticDL itself is built. Words after -- are passed to the build of the engine.
    """
    import shlex

    from elasticdl.cli.screens.progress_bars import engine_progress
    from elasticdl.image import build, pinning, plan, wheel
    from elasticdl.image.model_directory import inspect_model_directory

    # After -- the first word is an option of the engine, never DIR.
    if directory is not None and str(directory).startswith("-"):
        directory, passed = None, (str(directory), *passed)
    plan.check_image_name(image)
    arguments = plan.parse_build_arguments(pairs)
    if base is not None and (extras or directory is None):
        raise SpecError("--base is an image with ElasticDL in it: it goes with a DIR, and without --extra")
    layout = inspect_model_directory(directory) if directory is not None else None
    wanted_extras = extras or (layout.framework if layout else "torch",)
    runtime_image = plan.plan_runtime_image(wanted_extras, arguments, name="" if layout else image)
    engines = _find_engine(engine)
    # A checkout changes under one version number; the engine's cache spares all but the wheel.
    is_due = base is None and (
        layout is None or wheel.find_checkout() is not None or not engines.has_image(runtime_image.name)
    )
    if dry_run:
        if is_due:
            shown_path = Path("CONTEXT")
            click.echo(shlex.join(build.runtime_image_command(engines, runtime_image, shown_path, passed)))
        if directory is not None and layout is not None:
            click.echo(f"\n{plan.render_dockerfile(base or runtime_image.name, layout)}")
            dockerfile = Path("DOCKERFILE")
            click.echo(
                shlex.join(
                    engines.build_command(
                        image, dockerfile=dockerfile, context=directory, arguments=arguments, engine_options=passed
                    )
                )
            )
        return
    if is_due:
        runtime_image = plan.RuntimeImage(runtime_image.name, pinning.pin_base(runtime_image.arguments))
        click.echo(f"on {runtime_image.arguments['BASE']}", err=True)
        with engine_progress(f"building {runtime_image.name} with {engines.name}") as show:
            build.build_runtime_image(engines, runtime_image, passed, show)
    if directory is None or layout is None:
        click.echo(f"built {image}")
        return
    if written := build.write_ignore_file(directory, layout):
        click.echo(written, err=True)
    content = plan.render_dockerfile(base or runtime_image.name, layout)
    with engine_progress(f"building {image} with {engines.name}") as show:
        build.build_model_image(engines, image, directory, content, arguments, passed, show)
    click.echo(f"built {image}; train with it:\n\n    {plan.suggest_train_command(image, layout)}")


PUSH_EXAMPLES = """
elasticdl zoo push registry.example.com/mnist:1
elasticdl zoo push registry.example.com/mnist:1 -- --tls-verify=false
"""


@click.command("push", cls=Command, examples=PUSH_EXAMPLES)
@click.argument("image", metavar="NAME:TAG")
@click.option("--engine", metavar="NAME", help="docker, podman or buildah. Default: the first of them that answers.")
@click.option("--dry-run", is_flag=True, help="Print the engine's command and run nothing.")
@click.argument("passed", nargs=-1, metavar="[-- ENGINE OPTIONS]")
def push_command(image: str, engine: str | None, dry_run: bool, passed: tuple[str, ...]) -> None:
    """Push an image to the registry in its name, with the login of the engine."""
    import shlex

    from elasticdl.cli.screens.progress_bars import engine_progress
    from elasticdl.image.engine import run_streaming
    from elasticdl.image.plan import check_registry

    check_registry(image)
    container_engine = _find_engine(engine)
    if dry_run:
        click.echo(shlex.join(container_engine.push_command(image, passed)))
        return
    if not container_engine.has_image(image):
        raise SpecError(
            f"{container_engine.name} has no image {image}; build it first: elasticdl zoo build DIR --image {image}"
        )
    with engine_progress(f"pushing {image} with {container_engine.name}") as show:
        run_streaming(container_engine.push_command(image, passed), show)
    click.echo(f"pushed {image}")


INIT_EXAMPLES = """
elasticdl zoo init my-zoo
"""


@click.group("zoo")
def command() -> None:
    """List models, write a starter model, and build images of models for a cluster."""


@command.command("init", cls=Command, examples=INIT_EXAMPLES)
@click.argument("directory", type=click.Path(path_type=Path))
def init_command(directory: Path) -> None:
    """Write a starter model with its data and a job.yaml into DIRECTORY."""
    from elasticdl.zoo import new_project as starter

    click.echo(starter.create_project(directory))


command.add_command(list_command)
command.add_command(show_command)
command.add_command(build_command)
command.add_command(push_command)


def _find_engine(name: str | None) -> ContainerEngine:
    """The engine that the user names, or the first that answers."""
    from elasticdl.image.engine import ENGINES, find_engine

    if name is not None and name not in ENGINES:
        near = did_you_mean(name, ENGINES)
        raise SpecError(f"--engine {name}: expected {', '.join(ENGINES[:-1])} or {ENGINES[-1]}{near}")
    return find_engine(name or "")
