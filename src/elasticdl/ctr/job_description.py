"""The job that a ctr.yaml describes: its defaults, its model file, and its job description. Pure."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from elasticdl.ctr.config import CtrConfig, WorkerLimits
from elasticdl.ctr.models.catalog import MODELS_BY_NAME
from elasticdl.spec import PsMode, load

MAX_BATCH_SIZE, MIN_BATCH_SIZE, STEPS_PER_EPOCH = 2048, 64, 64
"""The default batch size is such that an epoch has about `STEPS_PER_EPOCH` steps."""

LEARNING_RATE = 0.0015
MODEL_LEARNING_RATES = {"lr": 0.005, "fm": 0.003}
"""Models without a deep network need larger steps."""


def default_batch_size(rows: int) -> int:
    """Returns a power of two."""
    return min(MAX_BATCH_SIZE, max(MIN_BATCH_SIZE, 1 << max(0, round(math.log2(max(rows, 1) / STEPS_PER_EPOCH)))))


def default_learning_rate(model: str) -> float:
    return MODEL_LEARNING_RATES.get(model, LEARNING_RATE)


def default_ps_options(mode: str) -> dict[str, Any]:
    """Returns options for the mode. Asynchronous pushes arrive some updates late, and Adam oscillates at the full rate.

    So a worker waits for its own pushes, and the rate is divided by the staleness; docs/click-models.md has figures.
    """
    return {"scale_lr_by_staleness": True, "pipeline_depth": 0} if mode == PsMode.ASYNC else {}


# The search space if ctr.yaml has none, as far as the model has these parameters: sizes around the models' defaults,
# and rates around LEARNING_RATE. These are guesses, not measurements.
DEFAULT_SEARCH_SPACE = {
    "learning_rate": "log(1e-4, 1e-2)",
    "embedding_dim": [8, 16, 32],
    "dropout": "uniform(0, 0.5)",
    "hidden_units": [[128, 64], [256, 128], [400, 400, 400]],
}


_TEMPLATE = '''"""Written by `elasticdl train {name}`. It is an ordinary model file: change it, and it is kept."""

from pathlib import Path

{imports}

_JOB = CtrJob(Path(__file__).parent)


def forward(**params):
    return _JOB.forward(**params)


def loss(labels, predictions):
    return _JOB.loss(labels, predictions)


def optimizer({optimizer}):
    return _JOB.optimizer({optimizer})


{decorator}def dataset_fn(dataset, mode, metadata):
    return _JOB.dataset(dataset, mode)


def eval_metrics_fn():
    return _JOB.metrics()


def callbacks():
    return _JOB.callbacks()


def model_files():
    return _JOB.model_files()
'''
_TORCH = {"imports": "from elasticdl.ctr.models.job import CtrJob", "optimizer": "parameters, lr", "decorator": ""}
_KERAS = {
    "imports": "from elasticdl.keras import numpy_dataset\nfrom elasticdl.ctr.models.keras.job import CtrJob",
    "optimizer": "lr",
    "decorator": "@numpy_dataset\n",
}


def module_name(model: str) -> str:
    """The name of the model file, without its suffix."""
    return model.replace("/", "_")


def render_model_file(model: str, config: str) -> str:
    """Renders the model file of a CTR model; `config` is the name of the ctr.yaml."""
    return _TEMPLATE.format(name=config, **(_KERAS if MODELS_BY_NAME[model].is_keras else _TORCH))


def batch_size(config: CtrConfig, rows: int) -> int:
    return config.training.batch_size or default_batch_size(rows)


def evaluation_steps(config: CtrConfig, rows: int) -> int:
    """The number of steps between evaluations, at least one."""
    return max(1, rows // (batch_size(config, rows) * config.training.evaluations))


def evaluations_per_epoch(config: CtrConfig, rows: int) -> float:
    """The number of evaluations per epoch that results from `training.evaluations` and whole steps."""
    return -(-rows // batch_size(config, rows)) / evaluation_steps(config, rows)


def build_job_description(config: CtrConfig, directory: Path, rows: int, ps_mode: str | None = None) -> dict[str, Any]:
    """Describes the job. The config's `job` overrides everything else; `ps_mode` overrides the mode in the config."""
    training, validation, _ = config.data_splits
    batch = batch_size(config, rows)
    every = evaluation_steps(config, rows)
    document: dict[str, Any] = {
        "model": {"zoo": str(directory), "definition": f"{module_name(config.model)}.forward"},
        "data": {"training": training, "columns": list(config.columns), "delimiter": config.delimiter},
        "plan": {
            "global_batch_size": batch,
            "minibatch_size": batch,  # the batch of an update in the modes async, local and sync
            "epochs": config.training.epochs,
            "learning_rate": config.training.learning_rate or default_learning_rate(config.model),
            "seed": config.training.seed,
        },
        "workers": _describe_workers(config.workers),
        "ps": {
            "replicas": config.ps,
            **default_ps_options(ps_mode or config.job.get("ps", {}).get("mode", PsMode.HYBRID)),
        },
        "output": config.output or str(directory / "model"),
    }
    if validation is not None:
        document["data"]["validation"] = validation
        document["evaluation"] = {"every_steps": every, "wait": True}
        document["checkpoint"] = {"every_steps": every, "keep_last": 5}
    return load.merge_documents(document, config.job)


def _describe_workers(workers: int | WorkerLimits) -> dict[str, int]:
    if isinstance(workers, int):
        return {"replicas": workers}
    return {"min": workers.min, "replicas": workers.max, "max": workers.max}
