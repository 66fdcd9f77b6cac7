"""What trains well where nothing is said. One place, so that the zoo, the config and the benchmark agree."""

from __future__ import annotations

BATCH_SIZE = 2048
LEARNING_RATE = 0.0015
SLOW = {"lr": 0.005, "fm": 0.003}
"""Models without a net have smaller steps to take."""


def learning_rate(model: str) -> float:
    return SLOW.get(model, LEARNING_RATE)
