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


def make_best_config(given: Mapping[str, Any], config: CtrConfig, trial: Trial) -> dict[str, Any]:
    """`given` is the file of the search as it stands, `config` the same with its paths anchored. Pure."""
    chosen = apply_values(config, trial.values)
    training = {**(given.get("training") or {}), **_set_values(chosen.training, ("learning_rate", "batch_size"))}
    kept = {key: value for key, value in given.items() if key not in ("search", "params")}
    paths = {"data": config.data, "validation": config.validation, "test": config.test, "output": config.output}
    return {
        **kept,
        **{key: value for key, value in paths.items() if key in given},
        "model": {chosen.model: dict(chosen.params)} if chosen.params else chosen.model,
        **({"training": training} if training else {}),
    }


def write_best_config(path: Path, found: Mapping[str, Any], trial: Trial, trials: int, built: Path) -> None:
    """With the statistics, features and model file of the search beside it, changed by hand or not."""
    heading = (
        f"# The best of {trials} trials: validation logloss {trial.value:.6g} (trial {trial.number}), "
        f"after {trial.best_evaluation + 1} evaluations.\n# Train it:  elasticdl train {path}\n"
    )
    directory = path.parent / f"{path.stem}-ctr"
    directory.mkdir(parents=True, exist_ok=True)
    for one in built.iterdir():
        if one.is_file() and one.name != SETTINGS_FILE:
            shutil.copyfile(one, directory / one.name)
    atomic.write_file(path, heading + yaml.safe_dump(dict(found), sort_keys=False, allow_unicode=True))


def _set_values(part: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: getattr(part, key) for key in keys if getattr(part, key) is not None}
