"""Building: the image of ElasticDL from the recipe shipped with the package, images of model directories on top."""

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
    """A directory for what an engine reads; gone afterwards, however that comes."""
    with tempfile.TemporaryDirectory(prefix="elasticdl-image-") as directory:
        yield Path(directory)


def build_runtime_image(
    engine: ContainerEngine, image: plan.RuntimeImage, passed: Sequence[str], show: ShowLine
) -> None:
    """Build the image of the ElasticDL that runs."""
    with temporary_workspace() as workspace:
        context = write_build_context(workspace / "context")
        wheel.make_wheel(context, show)
        run_streaming(runtime_image_command(engine, image, context, passed), show)


def write_build_context(context: Path) -> Path:
    """Copy the recipe, all but the wheel, to the new directory `context`."""
    with resources.as_file(resources.files("elasticdl.image") / "recipe") as recipe:
        shutil.copytree(recipe, context, ignore=shutil.ignore_patterns("__pycache__"))
    return context


def runtime_image_command(
    engine: ContainerEngine, image: plan.RuntimeImage, context: Path, passed: Sequence[str]
) -> list[str]:
    dockerfile = context / "Dockerfile"
    return engine.build_command(
        image.name, dockerfile=dockerfile, context=context, arguments=image.arguments, passed=passed
    )


def build_model_image(
    engine: ContainerEngine,
    image: str,
    directory: Path,
    content: str,
    arguments: Mapping[str, str],
    passed: Sequence[str],
    show: ShowLine,
) -> None:
    """Build the image of a model directory from the Dockerfile `content`, which is never written into it."""
    with temporary_workspace() as workspace:
        dockerfile = workspace / "Dockerfile"
        dockerfile.write_text(content, encoding="utf-8")
        run_streaming(
            engine.build_command(image, dockerfile=dockerfile, context=directory, arguments=arguments, passed=passed),
            show,
        )


def write_ignore_file(directory: Path, models: ModelDirectory) -> str:
    """Write .dockerignore where there is none; returns what was written, for a person, or nothing."""
    if models.has_ignore_file:
        return ""
    target = directory / IGNORE_FILES[0]
    content = (resources.files("elasticdl.image") / "recipe" / "dockerignore").read_text(encoding="utf-8")
    try:
        target.write_text(content, encoding="utf-8")
    except OSError as exc:
        raise SpecError(f"{target} cannot be written: {exc}; write one yourself, an empty one will do") from exc
    return f"{target} written: what stays out of the image"
