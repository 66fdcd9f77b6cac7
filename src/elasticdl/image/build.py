"""Builds the image of ElasticDL from the recipe shipped with the package, and images of model directories on top."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from elasticdl.errors import SpecError
from elasticdl.image import plan, wheel
from elasticdl.image.engine import ContainerEngine, run_streaming
from elasticdl.image.model_directory import IGNORE_FILES, ModelDirectory

ShowLine = Callable[[str], None]


@contextmanager
def temporary_workspace() -> Iterator[Path]:
    """A temporary directory for the files that an engine reads."""
    with tempfile.TemporaryDirectory(prefix="elasticdl-image-") as directory:
        yield Path(directory)


def build_runtime_image(
    engine: ContainerEngine, image: plan.RuntimeImage, engine_options: Sequence[str], show: ShowLine
) -> None:
    """Build the image of the running version of ElasticDL."""
    with temporary_workspace() as workspace:
        context = write_build_context(workspace / "context")
        wheel.make_wheel(context, show)
        run_streaming(runtime_image_command(engine, image, context, engine_options), show)


def write_build_context(context: Path) -> Path:
    """Copy the recipe to the new directory `context`, which then lacks only the wheel."""
    with resources.as_file(resources.files("elasticdl.image") / "recipe") as recipe:
        shutil.copytree(recipe, context, ignore=shutil.ignore_patterns("__pycache__"))
    return context


def runtime_image_command(
    engine: ContainerEngine, image: plan.RuntimeImage, context: Path, engine_options: Sequence[str]
) -> list[str]:
    dockerfile = context / "Dockerfile"
    return engine.build_command(
        image.name, dockerfile=dockerfile, context=context, arguments=image.arguments, engine_options=engine_options
    )


def build_model_image(
    engine: ContainerEngine,
    image: str,
    directory: Path,
    content: str,
    arguments: Mapping[str, str],
    engine_options: Sequence[str],
    show: ShowLine,
) -> None:
    """Build the image of a model directory from the Dockerfile `content`, which is not written to the directory."""
    with temporary_workspace() as workspace:
        dockerfile = workspace / "Dockerfile"
        dockerfile.write_text(content, encoding="utf-8")
        run_streaming(
            engine.build_command(
                image, dockerfile=dockerfile, context=directory, arguments=arguments, engine_options=engine_options
            ),
            show,
        )


def write_ignore_file(directory: Path, models: ModelDirectory) -> str:
    """Write .dockerignore if there is none; returns a message about it, or nothing."""
    if models.has_ignore_file:
        return ""
    target = directory / IGNORE_FILES[0]
    content = (resources.files("elasticdl.image") / "recipe" / "dockerignore").read_text(encoding="utf-8")
    try:
        target.write_text(content, encoding="utf-8")
    except OSError as exc:
        raise SpecError(f"{target} cannot be written: {exc}; write one yourself, an empty one will do") from exc
    return f"{target} written: files that stay out of the image"
