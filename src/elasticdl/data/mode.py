"""What a model is being run for."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """Given to dataset_fn, which may read labels in TRAINING and EVALUATION only."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"
