"""The functions of a model file made from ctr.yaml: the model and its preprocessor, loss, dataset and metrics."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from elasticdl.ctr.models import catalog
from elasticdl.data.dataset import Dataset
from elasticdl.errors import ModelError
from elasticdl.features.layout import FeatureLayout
from elasticdl.features.preprocessing import standalone
from elasticdl.features.preprocessing.preprocessor import PREPROCESSOR_FILE, Preprocessor
from elasticdl.features.preprocessing.target_encoding import TargetFolds
from elasticdl.model.callbacks import Callback, EarlyStopping, ReduceLROnPlateau
from elasticdl.model.metrics import AUC, Metric
from elasticdl.model.mode import Mode


def weighted_logloss(labels: Tensor | dict[str, Tensor], predictions: Tensor, positive_weight: float = 1.0) -> Tensor:
    """Returns the mean over rows of each row's logloss times its weight.

    Args:
        labels: 0 or 1, [rows]; or {"label": [rows], "weight": [rows]}.
        predictions: scores before the sigmoid, [rows].
        positive_weight: how many times a row with label 1 counts. Predictions are then odds of that many positives.

    Weights are not scaled to a mean of 1, so that a batch has the same gradient however many workers share it.
    """
    if not positive_weight > 0:
        raise ModelError(f"logloss: expected positive_weight above 0. Received: {positive_weight}")
    targets = labels["label"] if isinstance(labels, dict) else labels
    weights = labels["weight"].to(predictions.dtype) if isinstance(labels, dict) and "weight" in labels else None
    if targets.shape != predictions.shape:
        raise ModelError(f"logloss: expected labels {list(predictions.shape)}. Received: {list(targets.shape)}")
    factor = predictions.new_tensor(positive_weight) if positive_weight != 1.0 else None
    return binary_cross_entropy_with_logits(
        predictions, targets.to(predictions.dtype), weight=weights, pos_weight=factor
    )


SETTINGS_FILE = "job.json"
EXPORTED_FILES = (PREPROCESSOR_FILE, "statistics.json", "features.yaml", SETTINGS_FILE)


class CtrJobSettings(BaseModel):
    """The content of job.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    params: dict[str, Any] = {}
    weight: str | None = None
    positive_weight: float = 1.0
    patience: int = 3


class ScoredModel(nn.Module):
    """Gives the model's score, and the probability of label 1 that the score stands for."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        score = self.model(features)
        return {"probability": torch.sigmoid(score), "score": score}


class CtrJob:
    """The functions of a model file, from the files that are in its directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.preprocessor = Preprocessor.load(directory)
        try:
            self.settings = CtrJobSettings.model_validate_json((directory / SETTINGS_FILE).read_text(encoding="utf-8"))
        except (OSError, ValidationError) as exc:
            raise ModelError(f"{directory / SETTINGS_FILE}: expected the settings of a job: {exc}") from exc

    @property
    def layout(self) -> FeatureLayout:
        return self.preprocessor.layout

    def forward(self, **params: Any) -> nn.Module:
        return ScoredModel(catalog.build_model(self.settings.model, self.layout, **{**self.settings.params, **params}))

    def loss(self, labels: dict[str, Tensor], predictions: dict[str, Tensor]) -> Tensor:
        return weighted_logloss(labels, predictions["score"], self.settings.positive_weight)

    def optimizer(self, parameters: Iterable[Tensor], lr: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=lr)

    def dataset(self, dataset: Dataset, mode: Mode) -> Dataset:
        """Maps raw columns to features, and to labels unless those are to be predicted."""
        has_labels = mode is not Mode.PREDICTION
        weight = self.settings.weight if has_labels else None
        types = {
            name: kind
            for name, kind in self.preprocessor.column_types.items()
            if has_labels or name != self.preprocessor.label
        }
        if weight is not None:
            types[weight] = pa.float64()

        folds = (
            TargetFolds.load(self.directory, self.preprocessor.target_encoders)
            if mode is Mode.TRAINING and self.preprocessor.target_encoders
            else None
        )

        def encode_batch(columns: pa.RecordBatch) -> Any:
            features = {name: self.to_tensor(array) for name, array in self.preprocessor.encode(columns, folds).items()}
            if not has_labels:
                return features
            labels = {"label": self.to_tensor(self.preprocessor.read_labels(columns))}
            if weight is not None:
                labels["weight"] = self.to_tensor(self.preprocessor.read_weights(columns, weight))
            return features, labels

        return dataset.map_columns(encode_batch, types)

    def to_tensor(self, array: Any) -> Any:
        """Converts an array to the type that the model takes."""
        return torch.from_numpy(array)

    def metrics(self) -> dict[str, Metric]:
        return {"logloss": LoglossMetric(), "auc": ScoreAUC(), "calibration": CalibrationMetric()}

    def callbacks(self) -> list[Callback]:
        """Ends training early and lowers the learning rate. With a patience of 0, does neither."""
        if self.settings.patience == 0:
            return []
        return [
            EarlyStopping("logloss", self.settings.patience, "min", exports_best=True),
            ReduceLROnPlateau("logloss", factor=0.1, patience=2, mode="min"),
        ]

    def model_files(self) -> dict[str, bytes]:
        """Returns the files that turn raw rows into features, with and without ElasticDL."""
        files = {
            name: (self.directory / name).read_bytes() for name in EXPORTED_FILES if (self.directory / name).exists()
        }
        return files | {"preprocessor.py": Path(standalone.__file__).read_bytes()}


class LoglossMetric:
    """The mean logloss of all rows; weights of rows do not count."""

    reduction = "mean"

    def update(self, labels: dict[str, Tensor], predictions: dict[str, Tensor]) -> list[float]:
        total = binary_cross_entropy_with_logits(
            predictions["score"].double(), labels["label"].double(), reduction="sum"
        )
        return [float(total)]


class ScoreAUC(AUC):
    """The AUC of the scores."""

    def __init__(self) -> None:
        super().__init__(from_logits=True)

    def update(self, labels: Any, predictions: Any) -> list[float]:
        return super().update(labels["label"], predictions["score"])


class CalibrationMetric:
    """Predicted positives over actual ones: 1 if probabilities are right on average."""

    reduction = "ratio"

    def update(self, labels: dict[str, Tensor], predictions: dict[str, Tensor]) -> list[float]:
        return [float(predictions["probability"].double().sum()), float(labels["label"].double().sum())]
