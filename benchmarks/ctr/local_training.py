"""Trains a model of the zoo in one process without a job, as `elasticdl.torch.join` does, including its tables.

After every half of an epoch the model is evaluated on the validation part. If its logloss is not better, the learning
rate falls to a tenth; after `PATIENCE` such evaluations in a row the training ends. The best weights count.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from ctr.rows import CriteoRows
from elasticdl.ctr import build
from elasticdl.ctr import config as configs
from elasticdl.ctr.job_description import default_batch_size, default_learning_rate
from elasticdl.ctr.models.catalog import build_model
from elasticdl.data import columns
from elasticdl.data.dataset import Dataset
from elasticdl.data.plan import TrainingPlan
from elasticdl.data.readers.mapped import as_source
from elasticdl.data.sources import open_source
from elasticdl.features.layout import FeatureLayout
from elasticdl.features.preprocessing.preprocessor import Preprocessor
from elasticdl.features.preprocessing.target_encoding import TargetFolds
from elasticdl.worker.embeddings.tables import open_local_tables
from elasticdl.worker.local import LocalTraining
from elasticdl.worker.training.loop import TrainingSetup

COLUMNS = "label,I1..I13,C1..C26"
EPOCHS, PATIENCE = 8, 2
PREDICTION_BATCH = 8192  # rows predicted at a time

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """All rows as the inputs of a model. Rows after the last of `labels` are only predicted."""

    layout: FeatureLayout
    features: dict[str, Tensor]
    labels: Tensor
    train: int
    valid: int

    @classmethod
    def from_criteo(cls, criteo_rows: CriteoRows, data: Path) -> EncodedRows:
        """Encodes the rows as `elasticdl train` does for a config with nothing but data, label and model."""
        with tempfile.TemporaryDirectory() as directory:
            document: dict[str, Any] = {"data": str(data), "label": "label", "model": "deepfm", "columns": COLUMNS}
            if len(criteo_rows.labels) != criteo_rows.all:  # --quick
                sizes = (criteo_rows.train, criteo_rows.valid, criteo_rows.all - criteo_rows.labeled)
                document["split"] = [100 * size / criteo_rows.all for size in sizes]
            config = configs.parse_config(document, "ctr.yaml")
            preprocessor = build.build_directory(
                config, Path(directory), "ctr.yaml", print, lambda *_: None
            ).preprocessor
            folds = TargetFolds.load(Path(directory), preprocessor.target_encoders)
            source = open_source(str(data), build.data_spec(config), Path(directory) / "index")
            parts = [
                preprocessor.encode(columns.read_columns(source, np.arange(*bounds), _types(preprocessor)), part_folds)
                for bounds, part_folds in (
                    ((0, criteo_rows.train), folds),
                    ((criteo_rows.train, len(criteo_rows.labels)), None),
                )
            ]
        features = {name: torch.from_numpy(np.concatenate([part[name] for part in parts])) for name in parts[0]}
        labels = torch.from_numpy(criteo_rows.labels[: criteo_rows.labeled])  # without those of the test part
        return cls(preprocessor.layout, features, labels, criteo_rows.train, criteo_rows.valid)

    def select(self, row_numbers: list[int]) -> tuple[dict[str, Tensor], Tensor]:
        index = torch.tensor(row_numbers)
        return {name: column[index] for name, column in self.features.items()}, self.labels[index]


def _types(preprocessor: Preprocessor) -> dict[str, pa.DataType]:
    return {name: data_type for name, data_type in preprocessor.column_types.items() if name != preprocessor.label}


def train(name: str, rows: EncodedRows, seed: int) -> Floats:
    """Returns the probabilities of a click that the best weights predict for the rows after the training part."""
    torch.manual_seed(seed)
    learning_rate = default_learning_rate(name)
    model, validated_model = build_model(name, rows.layout), build_model(name, rows.layout).eval()
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    plan = TrainingPlan(
        records=rows.train, global_batch=default_batch_size(rows.train), logical_ranks=1, epochs=EPOCHS, seed=seed
    )
    tables = open_local_tables(model, optimizer, seed)
    tables.attach_model(validated_model)
    dataset = Dataset(as_source(range(rows.train), "rows")).map_batches(rows.select)
    rate_factor = 1.0
    setup = TrainingSetup(
        model, [optimizer], torch.device("cpu"), tables, learning_rate=lambda step: learning_rate * rate_factor
    )
    job = LocalTraining.open(setup, dataset, plan)
    best_loss, best_predictions, checks_without_gain = float("inf"), np.zeros(0), 0
    check_steps = max(1, plan.steps_per_epoch // 2)
    for step in job.steps():
        for features, labels in step:
            step.backward(binary_cross_entropy_with_logits(model(features), labels))
        if step.number == 0 or step.number % check_steps:
            continue
        validated_model.load_state_dict(model.state_dict(), strict=False)
        scores = predict(validated_model, rows)
        loss = float(binary_cross_entropy_with_logits(scores[: rows.valid], rows.labels[rows.train :]))
        if loss < best_loss:
            best_loss, best_predictions, checks_without_gain = loss, torch.sigmoid(scores).double().numpy(), 0
        else:
            checks_without_gain, rate_factor = checks_without_gain + 1, rate_factor * 0.1
        if checks_without_gain == PATIENCE:
            break
    return best_predictions


@torch.no_grad()
def predict(model: nn.Module, rows: EncodedRows) -> Tensor:
    row_count = len(rows.features["ids"])
    slices = [
        slice(start, min(start + PREDICTION_BATCH, row_count))
        for start in range(rows.train, row_count, PREDICTION_BATCH)
    ]
    return torch.cat([model({name: column[part] for name, column in rows.features.items()}) for part in slices])
