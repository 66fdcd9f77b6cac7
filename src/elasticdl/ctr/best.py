"""best.yaml: the config of a search with the best values filled in, and a directory that needs no new analysis."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from elasticdl import replacement
from elasticdl.ctr.building import JOB
from elasticdl.ctr.config import CtrConfig
from elasticdl.ctr.space import filled
from elasticdl.ctr.study import Trial

FILE = "best.yaml"


def document(given: Mapping[str, Any], config: CtrConfig, trial: Trial) -> dict[str, Any]:
    """`given` is the file of the search as it stands, `config` the same with its paths anchored. Pure."""
    chosen = filled(config, trial.values)
    training = {**(given.get("training") or {}), **_given(chosen.training, ("learning_rate", "batch_size"))}
    kept = {key: value for key, value in given.items() if key not in ("search", "params")}
    paths = {"data": config.data, "validation": config.validation, "test": config.test, "output": config.output}
    return {
        **kept,
        **{key: value for key, value in paths.items() if key in given},
        "model": {chosen.model: dict(chosen.params)} if chosen.params else chosen.model,
        **({"training": training} if training else {}),
    }


def write(path: Path, found: Mapping[str, Any], trial: Trial, trials: int, built: Path) -> None:
    """With the statistics, features and model file of the search beside it, changed by hand or not."""
    heading = (
        f"# The best of {trials} trials: validation logloss {trial.value:.6g} (trial {trial.number}), "
        f"after {trial.best_at + 1} evaluations.\n# Train it:  elasticdl train {path}\n"
    )
    directory = path.parent / f"{path.stem}-ctr"
    directory.mkdir(parents=True, exist_ok=True)
    for one in built.iterdir():
        if one.is_file() and one.name != JOB:
            shutil.copyfile(one, directory / one.name)
    replacement.write(path, heading + yaml.safe_dump(dict(found), sort_keys=False, allow_unicode=True))


def _given(part: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: getattr(part, key) for key in keys if getattr(part, key) is not None}
