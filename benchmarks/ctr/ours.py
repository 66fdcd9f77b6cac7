"""Train a model of the zoo as `elasticdl.torch.join` alone does, with its tables in the process.

After every half of an epoch the validation part is asked. Where its logloss is no better, the learning rate is a tenth
from there on; after `PATIENCE` such answers in a row the training ends. The best weights count.
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

from ctr.rows import Raw
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
PIECE = 8192  # rows predicted at a time

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Table:
    """All rows as a model takes them. Those behind `labels` are predicted only."""

    layout: FeatureLayout
    features: dict[str, Tensor]
    labels: Tensor
    train: int
    valid: int

    @classmethod
    def of(cls, raw: Raw, data: Path) -> Table:
        """As `elasticdl train` treats them where the config says nothing but data, label and model."""
        with tempfile.TemporaryDirectory() as place:
            document: dict[str, Any] = {"data": str(data), "label": "label", "model": "deepfm", "columns": COLUMNS}
            if len(raw.labels) != raw.all:  # --quick
                document["split"] = [100 * part / raw.all for part in (raw.train, raw.valid, raw.all - raw.known)]
            config = configs.parse_config(document, "ctr.yaml")
            front = build.build_directory(config, Path(place), "ctr.yaml", print, lambda *_: None).preprocessor
            folds = TargetFolds.load(Path(place), front.target_encoders)
            source = open_source(str(data), build.data_spec(config), Path(place) / "index")
            rows = [
                front.encode(columns.read_columns(source, np.arange(*part), _types(front)), of)
                for part, of in (((0, raw.train), folds), ((raw.train, len(raw.labels)), None))
            ]
        features = {name: torch.from_numpy(np.concatenate([part[name] for part in rows])) for name in rows[0]}
        known = torch.from_numpy(raw.labels[: raw.known])  # the test part's stay where they are
        return cls(front.layout, features, known, raw.train, raw.valid)

    def some(self, rows: list[int]) -> tuple[dict[str, Tensor], Tensor]:
        places = torch.tensor(rows)
        return {name: column[places] for name, column in self.features.items()}, self.labels[places]


def _types(front: Preprocessor) -> dict[str, pa.DataType]:
    return {name: kind for name, kind in front.column_types.items() if name != front.label}


def train(name: str, table: Table, seed: int) -> Floats:
    """The chances of a click that the best weights see in the rows behind the training part."""
    torch.manual_seed(seed)
    rate = default_learning_rate(name)
    model, watcher = build_model(name, table.layout), build_model(name, table.layout).eval()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    plan = TrainingPlan(
        records=table.train, global_batch=default_batch_size(table.train), logical_ranks=1, epochs=EPOCHS, seed=seed
    )
    tables = open_local_tables(model, optimizer, seed)
    tables.attach_model(watcher)
    dataset = Dataset(as_source(range(table.train), "rows")).map_batches(table.some)
    factor = 1.0
    setup = TrainingSetup(model, [optimizer], torch.device("cpu"), tables, learning_rate=lambda step: rate * factor)
    job = LocalTraining.open(setup, dataset, plan)
    best, kept, waited = float("inf"), np.zeros(0), 0
    every = max(1, plan.steps_per_epoch // 2)
    for step in job.steps():
        for features, labels in step:
            step.backward(binary_cross_entropy_with_logits(model(features), labels))
        if step.number == 0 or step.number % every:
            continue
        watcher.load_state_dict(model.state_dict(), strict=False)
        scores = predict(watcher, table)
        loss = float(binary_cross_entropy_with_logits(scores[: table.valid], table.labels[table.train :]))
        if loss < best:
            best, kept, waited = loss, torch.sigmoid(scores).double().numpy(), 0
        else:
            waited, factor = waited + 1, factor * 0.1
        if waited == PATIENCE:
            break
    return kept


@torch.no_grad()
def predict(model: nn.Module, table: Table) -> Tensor:
    rows = len(table.features["ids"])
    cuts = [slice(start, min(start + PIECE, rows)) for start in range(table.train, rows, PIECE)]
    return torch.cat([model({name: column[cut] for name, column in table.features.items()}) for cut in cuts])
