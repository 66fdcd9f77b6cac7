"""A peer of ctr_quality.py: a model of FuxiCTR's layers and its training loop, prepared as its Criteo set is.

    python fuxictr_quality.py ROWS.npz MODEL SEED PREDICTIONS.npy

Numbers become categories by floor(ln(x)²), categories of fewer than 10 rows one of their own. The models are put
together here from its layers, as its package does not bring them: DeepFM and DCN-V2 with nets of 400, 400, 400.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuxictr.features import FeatureMap
from fuxictr.pytorch.layers import CrossNetV2, FactorizationMachine, FeatureEmbedding, MLP_Block
from fuxictr.pytorch.models import BaseModel
from torch import nn

BATCH, EPOCHS, COLUMNS, LEARNING_RATE = 1024, 5, 10, 1e-3
MIN_COUNT = 10
HIDDEN = [400, 400, 400]


class Ranking(BaseModel):
    def __init__(self, feature_map: FeatureMap, **options: Any) -> None:
        super().__init__(
            feature_map, embedding_regularizer=1e-5, verbose=0, metrics=["AUC", "logloss"], monitor="logloss",
            monitor_mode="min", early_stop_patience=2, **options,
        )  # fmt: skip
        self.embedding_layer = FeatureEmbedding(feature_map, COLUMNS)
        self.build(feature_map)
        self.compile("adam", "binary_crossentropy", LEARNING_RATE)
        self.reset_parameters()

    def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        x = self.get_inputs(inputs)
        return {"y_pred": self.output_activation(self.score(x, self.embedding_layer(x)))}


class DeepFM(Ranking):
    def build(self, feature_map: FeatureMap) -> None:
        self.fm = FactorizationMachine(feature_map)
        self.mlp = MLP_Block(feature_map.sum_emb_out_dim(), HIDDEN, output_dim=1, dropout_rates=0.2)

    def score(self, x: Any, embedded: torch.Tensor) -> torch.Tensor:
        return self.fm(x, embedded) + self.mlp(embedded.flatten(start_dim=1))


class DCNv2(Ranking):
    def build(self, feature_map: FeatureMap) -> None:
        inputs = feature_map.sum_emb_out_dim()
        self.cross = CrossNetV2(inputs, 3)
        self.mlp = MLP_Block(inputs, HIDDEN, dropout_rates=0.2)
        self.fc = nn.Linear(inputs + HIDDEN[-1], 1)

    def score(self, x: Any, embedded: torch.Tensor) -> torch.Tensor:
        flat = embedded.flatten(start_dim=1)
        return self.fc(torch.cat([self.cross(flat), self.mlp(flat)], dim=-1))


MODELS = {"deepfm": DeepFM, "dcn_v2": DCNv2}


class Batches:
    """Batches of rows, in a new order each time if they are shuffled."""

    def __init__(self, columns: dict[str, torch.Tensor], *, is_shuffled: bool) -> None:
        self._columns, self._is_shuffled = columns, is_shuffled
        self._rows = len(columns["label"])
        self.num_samples = self._rows

    def __len__(self) -> int:
        return -(-self._rows // BATCH)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        order = torch.randperm(self._rows) if self._is_shuffled else torch.arange(self._rows)
        for rows in order.split(BATCH):
            yield {name: column[rows] for name, column in self._columns.items()}


def main(rows: Path, name: str, seed: int, predictions: Path) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    with np.load(rows) as archive:
        labels, numbers, values = archive["labels"], archive["numbers"], archive["values"]
        train, valid = int(archive["train"]), int(archive["valid"])
    log_squares = np.where(numbers > 2, np.floor(np.log(np.maximum(numbers, 3)) ** 2) + 10, numbers + 4)
    columns = np.concatenate([np.where(np.isnan(numbers), -1, log_squares).astype(np.int64), values], axis=1)
    feature_map = FeatureMap("criteo", ".")
    feature_map.labels, feature_map.default_emb_dim = ["label"], COLUMNS
    inputs = {"label": torch.from_numpy(labels)}
    for n, column in enumerate(columns.T):
        value_numbers, size = _number_values(column, train)
        inputs[f"c{n}"] = torch.from_numpy(value_numbers)
        feature_map.features[f"c{n}"] = {"source": "", "type": "categorical", "vocab_size": size}
    feature_map.num_fields = feature_map.get_num_fields()
    feature_map.set_column_index()
    parts = [slice(0, train), slice(train, train + valid), slice(train, None)]
    train_columns, valid_columns, predicted_columns = (
        {name: column[part] for name, column in inputs.items()} for part in parts
    )
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "criteo").mkdir()
        model = MODELS[name](feature_map, model_id=name, model_root=directory)
        model.fit(Batches(train_columns, is_shuffled=True), EPOCHS, Batches(valid_columns, is_shuffled=False))
        np.save(predictions, model.predict(Batches(predicted_columns, is_shuffled=False)).astype(np.float64))


def _number_values(column: np.ndarray, train: int) -> tuple[np.ndarray, int]:
    """Numbers the values of a column; rare and new values are 0."""
    values, counts = np.unique(column[:train], return_counts=True)
    frequent = values[counts >= MIN_COUNT]
    index = np.minimum(np.searchsorted(frequent, column), max(len(frequent) - 1, 0))
    return np.where(frequent[index] == column, index + 1, 0) if len(frequent) else np.zeros_like(column), len(
        frequent
    ) + 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
