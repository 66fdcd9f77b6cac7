"""What a model file is used for at the moment: `dataset_fn` may read records differently for each."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    TRAINING = "training"  # records with labels
    EVALUATION = "evaluation"  # records with labels
    PREDICTION = "prediction"  # records without labels
