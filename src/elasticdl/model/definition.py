"""Locates a model file: `mnist.mnist.forward` in the directory `zoo` is `forward` in zoo/mnist/mnist.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import ModelError
from elasticdl.model import functions
from elasticdl.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class ModelFileLocation:
    """The file of a model, the directory it was found in, and the function that builds the model."""

    zoo: Path
    file: Path
    function: str


def locate_model_file(model: ModelSpec) -> ModelFileLocation:
    """The file and the function that a job names; a ModelError says what is missing and what exists instead."""
    zoo = Path(model.zoo)
    parts = model.definition.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise ModelError(
            f"--model_def={model.definition}: expected file.function or directory.file.function, "
            "for instance mnist.mnist.forward"
        )
    if not zoo.is_dir():
        raise ModelError(f"--model_zoo={model.zoo}: expected a directory, found {'a file' if zoo.exists() else 'none'}")
    *folders, function = parts
    for file in _candidates(zoo, folders):
        if file.is_file():
            return ModelFileLocation(zoo.resolve(), file.resolve(), function)
    raise ModelError(
        f"--model_def={model.definition}: {_candidates(zoo, folders)[0]} does not exist{_hint(zoo, parts)}"
    )


def _candidates(zoo: Path, folders: Sequence[str]) -> tuple[Path, Path]:
    base = zoo.joinpath(*folders)
    return base.with_suffix(".py"), base / "__init__.py"


def _hint(zoo: Path, parts: Sequence[str]) -> str:
    if any(file.is_file() for file in _candidates(zoo, parts)):
        return f"; did you forget the function, as in {'.'.join(parts)}.forward?"
    names = {".".join(path.relative_to(zoo).with_suffix("").parts) for path in (*zoo.glob("*.py"), *zoo.glob("*/*.py"))}
    near = functions.suggest_nearest(".".join(parts[:-1]), names)
    return (
        near.replace("?", f".{parts[-1]}?") if near else f"; {zoo} holds {', '.join(sorted(names)) or 'no model files'}"
    )


def make_contract_error(file: Path, problems: Sequence[str]) -> ModelError:
    """All problems of one model file as one error."""
    if len(problems) == 1:
        return ModelError(f"{file}: {problems[0]}")
    return ModelError(f"{file} does not keep the contract, {len(problems)} problems:\n  " + "\n  ".join(problems))
