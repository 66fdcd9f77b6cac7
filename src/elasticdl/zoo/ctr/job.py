"""A model of the zoo bound to a front: the contract's functions as methods, for the model file that `ctr.yaml` makes.

The directory has front.json, made of raw columns, and job.json, which says what is trained on them and how.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from elasticdl.data.dataset import Dataset
from elasticdl.errors import ModelError
from elasticdl.features import served
from elasticdl.features.front import Front
from elasticdl.features.layout import Layout
from elasticdl.features.rates import Folds
from elasticdl.model.callbacks import Callback, EarlyStopping, ReduceLROnPlateau
from elasticdl.model.metrics import AUC, Metric
from elasticdl.model.mode import Mode
from elasticdl.zoo.ctr import models
from elasticdl.zoo.ctr.logloss import logloss

FILE = "job.json"
BESIDE = ("front.json", "statistics.json", "features.yaml", FILE)


class Settings(BaseModel):
    """job.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    params: dict[str, Any] = {}
    weight: str | None = None
    positive_weight: float = 1.0
    patience: int = 3


class Scored(nn.Module):
    """The model's score, and the chance of a click it stands for."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        score = self.model(features)
        return {"chance": torch.sigmoid(score), "score": score}


class Job:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.front = Front.load(directory)
        try:
            self.settings = Settings.model_validate_json((directory / FILE).read_text(encoding="utf-8"))
        except (OSError, ValidationError) as exc:
            raise ModelError(f"{directory / FILE}: expected the settings of a job: {exc}") from exc

    @property
    def layout(self) -> Layout:
        return self.front.layout

    def forward(self, **params: Any) -> nn.Module:
        return Scored(models.build(self.settings.model, self.layout, **{**self.settings.params, **params}))

    def loss(self, labels: dict[str, Tensor], predictions: dict[str, Tensor]) -> Tensor:
        return logloss(labels, predictions["score"], self.settings.positive_weight)

    def optimizer(self, parameters: Iterable[Tensor], lr: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=lr)

    def dataset(self, dataset: Dataset, mode: Mode) -> Dataset:
        """Features of raw columns; with labels unless they are to be predicted."""
        has_labels = mode is not Mode.PREDICTION
        weight = self.settings.weight if has_labels else None
        types = {name: kind for name, kind in self.front.types.items() if has_labels or name != self.front.label}
        if weight is not None:
            types[weight] = pa.float64()

        folds = Folds.load(self.directory, self.front.rates) if mode is Mode.TRAINING and self.front.rates else None

        def made(columns: pa.RecordBatch) -> Any:
            features = {name: self.of_array(array) for name, array in self.front.encode(columns, folds).items()}
            if not has_labels:
                return features
            labels = {"label": self.of_array(self.front.labels(columns))}
            if weight is not None:
                labels["weight"] = self.of_array(self.front.weights(columns, weight))
            return features, labels

        return dataset.map_columns(made, types)

    def of_array(self, array: Any) -> Any:
        """What a model takes."""
        return torch.from_numpy(array)

    def metrics(self) -> dict[str, Metric]:
        return {"logloss": Logloss(), "auc": ScoreAUC(), "calibration": Calibration()}

    def callbacks(self) -> list[Callback]:
        return [
            EarlyStopping("logloss", self.settings.patience, "min", exports_best=True),
            ReduceLROnPlateau("logloss", factor=0.1, patience=2, mode="min"),
        ]

    def model_files(self) -> dict[str, bytes]:
        """What makes features of raw rows, with and without ElasticDL."""
        found = {name: (self.directory / name).read_bytes() for name in BESIDE if (self.directory / name).exists()}
        return found | {"served.py": Path(served.__file__).read_bytes()}


class Logloss:
    """Of every row alike, whatever it weighs in training."""

    reduction = "mean"

    def update(self, labels: dict[str, Tensor], predictions: dict[str, Tensor]) -> list[float]:
        each = binary_cross_entropy_with_logits(
            predictions["score"].double(), labels["label"].double(), reduction="sum"
        )
        return [float(each)]


class ScoreAUC(AUC):
    def __init__(self) -> None:
        super().__init__(from_logits=True)

    def update(self, labels: Any, predictions: Any) -> list[float]:
        return super().update(labels["label"], predictions["score"])


class Calibration:
    """Predicted clicks over clicks: 1 where the chances are right on the whole."""

    reduction = "ratio"

    def update(self, labels: dict[str, Tensor], predictions: dict[str, Tensor]) -> list[float]:
        return [float(predictions["chance"].double().sum()), float(labels["label"].double().sum())]
