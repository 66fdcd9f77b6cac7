"""Writes best.yaml: the config of a search with the best values filled in, and the files it needs beside it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from elasticdl import atomic
from elasticdl.ctr.build import SETTINGS_FILE
from elasticdl.ctr.config import CtrConfig
from elasticdl.ctr.search.space import apply_values
from elasticdl.ctr.search.study import Trial

BEST_FILE = "best.yaml"


def make_best_config(document: Mapping[str, Any], config: CtrConfig, trial: Trial) -> dict[str, Any]:
    """Returns the best config. `document` is the file of the search, `config` the same with absolute paths. Pure."""
    best = apply_values(config, trial.values)
    training = {**(document.get("training") or {}), **_set_values(best.training, ("learning_rate", "batch_size"))}
    unchanged = {key: value for key, value in document.items() if key not in ("search", "params")}
    paths = {"data": config.data, "validation": config.validation, "test": config.test, "output": config.output}
    return {
        **unchanged,
        **{key: value for key, value in paths.items() if key in document},
        "model": {best.model: dict(best.params)} if best.params else best.model,
        **({"training": training} if training else {}),
    }


def write_best_config(path: Path, document: Mapping[str, Any], trial: Trial, trials: int, built: Path) -> None:
    """Writes the best config, and beside it the statistics, features and model file of the search."""
    heading = (
        f"# The best of {trials} trials: validation logloss {trial.value:.6g} (trial {trial.number}), "
        f"after {trial.best_evaluation + 1} evaluations.\n# Train it:  elasticdl train {path}\n"
    )
    directory = path.parent / f"{path.stem}-ctr"
    directory.mkdir(parents=True, exist_ok=True)
    for file in built.iterdir():
        if file.is_file() and file.name != SETTINGS_FILE:
            shutil.copyfile(file, directory / file.name)
    atomic.write_file(path, heading + yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True))


def _set_values(part: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: getattr(part, key) for key in keys if getattr(part, key) is not None}
