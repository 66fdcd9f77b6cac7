"""A config and what was built of it, as the description of an ordinary job. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elasticdl.ctr import defaults
from elasticdl.ctr.config import CtrConfig
from elasticdl.ctr.model_file import module_of
from elasticdl.spec import PsMode, load


def batch_size(config: CtrConfig, rows: int) -> int:
    return config.training.batch_size or defaults.batch_size(rows)


def evaluated_every(config: CtrConfig, rows: int) -> int:
    """So many steps, at least one."""
    return max(1, rows // (batch_size(config, rows) * config.training.evaluations))


def evaluations_of_epoch(config: CtrConfig, rows: int) -> float:
    """How many really come of `training.evaluations`: steps are whole."""
    return -(-rows // batch_size(config, rows)) / evaluated_every(config, rows)


def to_job(config: CtrConfig, directory: Path, rows: int, ps_mode: str | None = None) -> dict[str, Any]:
    """What the config's `job` says comes last, and so counts. `ps_mode`: of this mode, whatever the config says."""
    training, validation, _ = config.parts
    batch = batch_size(config, rows)
    every = evaluated_every(config, rows)
    described: dict[str, Any] = {
        "model": {"zoo": str(directory), "definition": f"{module_of(config.model)}.forward"},
        "data": {"training": training, "columns": list(config.columns), "delimiter": config.delimiter},
        "plan": {
            "global_batch_size": batch,
            "minibatch_size": batch,  # what makes an update where workers are not in step: async, local, sync
            "epochs": config.training.epochs,
            "learning_rate": config.training.learning_rate or defaults.learning_rate(config.model),
            "seed": config.training.seed,
        },
        "workers": _workers(config.workers),
        "ps": {"wish": config.ps, **defaults.ps(ps_mode or config.job.get("ps", {}).get("mode", PsMode.HYBRID))},
        "output": config.output or str(directory / "model"),
    }
    if validation is not None:
        described["data"]["validation"] = validation
        described["evaluation"] = {"steps": every, "wait": True}
        described["checkpoint"] = {"steps": every, "keep": 5}
    return load.merge(described, config.job)


def _workers(given: int | tuple[int, int]) -> dict[str, int]:
    if isinstance(given, int):
        return {"wish": given}
    fewest, most = given
    return {"min": fewest, "wish": most, "max": most}
