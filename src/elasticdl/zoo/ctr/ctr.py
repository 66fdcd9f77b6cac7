"""Jobs on records of clicks: DeepFM and Wide & Deep of the zoo, with their tables on ps.

python -m elasticdl.zoo.ctr.data data
elasticdl train --model_zoo=src/elasticdl/zoo --model_def=ctr.ctr.deepfm --num_ps_pods=1 --num_workers=2 \
    --training_data=data/train.clicks --validation_data=data/test.clicks

The data is a file of synthetic clicks as above, or one of Criteo's challenge (train.txt, also as .xz).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elasticdl.ctr.models.catalog import build_model
from elasticdl.ctr.models.job import weighted_logloss
from elasticdl.data.dataset import Dataset, Metadata
from elasticdl.features.layout import FeatureLayout, IdField
from elasticdl.model.metrics import AUC, Metric
from elasticdl.model.mode import Mode
from elasticdl.zoo.ctr.data import FIELD_SIZES, NUMBERS, RECORD, ClickRecords, read_criteo

LAYOUT = FeatureLayout(
    fields=tuple(IdField(name=f"C{number + 1}", size=int(size)) for number, size in enumerate(FIELD_SIZES)),
    numbers=tuple(f"I{number + 1}" for number in range(NUMBERS)),
)


def deepfm(embedding_dim: int = 16, hidden_units: tuple[int, ...] = (256, 128)) -> nn.Module:
    model: nn.Module = build_model(
        "deepfm", LAYOUT, embedding_dim=embedding_dim, hidden_units=tuple(hidden_units), dropout=0.0
    )
    return model


def wide_and_deep(embedding_dim: int = 8, hidden_units: tuple[int, ...] = (64, 32)) -> nn.Module:
    model: nn.Module = build_model(
        "wide_deep", LAYOUT, embedding_dim=embedding_dim, hidden_units=tuple(hidden_units), dropout=0.0
    )
    return model


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return weighted_logloss(labels, predictions)


def optimizer(parameters: Iterable[Tensor], lr: float = 0.02) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, lr=lr)


def custom_data_reader(data_path: str) -> Any:
    path = Path(data_path)
    if path.suffix == ".clicks":
        return ClickRecords(path)
    return [record.tobytes() for record in read_criteo(path)]


def dataset_fn(dataset: Dataset, mode: Mode, metadata: Metadata) -> Dataset:
    def parse(items: list[bytes]) -> Any:
        records = np.frombuffer(b"".join(items), RECORD)
        features = {name: torch.from_numpy(np.ascontiguousarray(records[name])) for name in ("ids", "numbers")}
        if mode is Mode.PREDICTION:
            return features
        return features, torch.from_numpy(np.ascontiguousarray(records["label"]))

    return dataset.map_batches(parse)


def eval_metrics_fn() -> dict[str, Metric]:
    return {"auc": AUC(from_logits=True)}
