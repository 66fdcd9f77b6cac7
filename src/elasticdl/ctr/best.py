"""best.yaml: the config of a search with the best values filled in, and a directory that needs no new analysis."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from elasticdl.ctr.building import FEATURES, MADE, STATISTICS
from elasticdl.ctr.config import CtrConfig
from elasticdl.ctr.space import filled
from elasticdl.ctr.study import Trial
from elasticdl.ctr.to_job import evaluations_of_epoch

FILE = "best.yaml"


def document(given: Mapping[str, Any], config: CtrConfig, trial: Trial, rows: int) -> dict[str, Any]:
    """`given` is the file of the search as it stands, `config` the same with its paths anchored. Pure.

    Epochs end where the trial was best: a model is exported as it is at the end of its training.
    """
    chosen = filled(config, trial.values)
    epochs = min(config.training.epochs, math.ceil((trial.best_at + 1) / evaluations_of_epoch(chosen, rows)))
    training = {**(given.get("training") or {}), **_given(chosen.training, ("learning_rate", "batch_size"))}
    kept = {key: value for key, value in given.items() if key not in ("search", "params")}
    paths = {"data": config.data, "validation": config.validation, "test": config.test, "output": config.output}
    return {
        **kept,
        **{key: value for key, value in paths.items() if key in given},
        "model": {chosen.model: dict(chosen.params)} if chosen.params else chosen.model,
        "training": {**training, "epochs": epochs},
    }


def write(path: Path, found: Mapping[str, Any], trial: Trial, trials: int, built: Path) -> None:
    """With the statistics and features of the search beside it, changed by hand or not."""
    heading = (
        f"# The best of {trials} trials: validation logloss {trial.value:.6g} (trial {trial.number}), "
        f"after {trial.best_at + 1} evaluations.\n# Train it:  elasticdl train {path}\n"
    )
    directory = path.parent / f"{path.stem}-ctr"
    directory.mkdir(parents=True, exist_ok=True)
    for name in (STATISTICS, FEATURES, MADE, *(one.name for one in built.glob("*.py"))):
        if (built / name).exists():
            shutil.copyfile(built / name, directory / name)
    staging = path.with_name(f".{path.name}.new")
    text = yaml.safe_dump(dict(found), sort_keys=False, allow_unicode=True)
    staging.write_text(heading + text, encoding="utf-8")
    staging.replace(path)


def _given(part: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: getattr(part, key) for key in keys if getattr(part, key) is not None}
