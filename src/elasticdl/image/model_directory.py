"""Inspects a directory of models without running its code: the framework its models need, and a model's name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import SpecError

REQUIREMENTS = "requirements.txt"
IGNORE_FILES = (".dockerignore", ".containerignore")
_BUILDERS = ("forward", "custom_model")
_KERAS = {"tensorflow", "keras"}


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    framework: str  # torch or tensorflow
    definition: str  # the first model found, as --model_def takes it; empty if there is none
    has_requirements: bool
    has_ignore_file: bool


def inspect_model_directory(directory: Path) -> ModelDirectory:
    """Inspect a directory of models. Raises SpecError if it has none."""
    if not directory.is_dir():
        raise SpecError(f"{directory} is not a directory; `elasticdl zoo init {directory}` creates one with a model")
    modules = {path: _parse_module(path) for path in sorted(directory.rglob("*.py")) if not _is_hidden(path, directory)}
    if not modules:
        raise SpecError(f"{directory} has no model, because it has no .py file; name the directory of your models")
    packages = {name for module in modules.values() for name in _imported_packages(module)}
    definitions = [
        ".".join([*path.relative_to(directory).with_suffix("").parts, name])
        for path, module in modules.items()
        for name in _BUILDERS
        if any(isinstance(node, ast.FunctionDef) and node.name == name for node in module.body)
    ]
    return ModelDirectory(
        framework="tensorflow" if packages & _KERAS else "torch",
        definition=definitions[0] if definitions else "",
        has_requirements=(directory / REQUIREMENTS).is_file(),
        has_ignore_file=any((directory / name).is_file() for name in IGNORE_FILES),
    )


def _is_hidden(path: Path, directory: Path) -> bool:
    return any(part.startswith(".") or part in ("__pycache__", "venv") for part in path.relative_to(directory).parts)


def _parse_module(path: Path) -> ast.Module:
    # A file with errors is no reason to refuse an image: `elasticdl train` reports them, with their lines.
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return ast.Module(body=[], type_ignores=[])


def _imported_packages(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
