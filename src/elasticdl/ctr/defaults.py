"""What trains well where nothing is said. One place, so that the zoo, the config and the benchmark agree."""

from __future__ import annotations

import math
from typing import Any

from elasticdl.spec import PsMode

MOST_BATCH, LEAST_BATCH, STEPS = 2048, 64, 64
"""A batch is such that an epoch has about `STEPS` of them."""

LEARNING_RATE = 0.0015
SLOW = {"lr": 0.005, "fm": 0.003}
"""Models without a net have smaller steps to take."""


def batch_size(rows: int) -> int:
    """A power of two."""
    return min(MOST_BATCH, max(LEAST_BATCH, 1 << max(0, round(math.log2(max(rows, 1) / STEPS)))))


def learning_rate(model: str) -> float:
    return SLOW.get(model, LEARNING_RATE)


def ps(mode: str) -> dict[str, Any]:
    """Asynchronous pushes are some updates old when they arrive, and Adam swings with them at the full rate.

    So a worker waits for its own, and the rate of a push is divided by its staleness: docs/click-models.md has figures.
    """
    return {"modulate_rate": True, "depth": 0} if mode == PsMode.ASYNC else {}


# What `elasticdl ctr search` looks for where ctr.yaml says nothing, as far as the model has such a parameter: two or
# three sizes around the models' own defaults, and rates around LEARNING_RATE. A choice of ours, not measured.
SEARCH = {
    "learning_rate": "log(1e-4, 1e-2)",
    "columns": [8, 16, 32],
    "dropout": "uniform(0, 0.5)",
    "hidden": [[128, 64], [256, 128], [400, 400, 400]],
}
