"""Train a model of the zoo as `elasticdl.torch.join` alone does, with its tables in the process.

After every half of an epoch the validation part is asked. Where its logloss is no better, the learning rate is a tenth
from there on; after `PATIENCE` such answers in a row the training ends. The best weights count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from ctr.rows import Raw, treated
from elasticdl.data.dataset import Dataset
from elasticdl.data.mapped import as_source
from elasticdl.data.plan import Plan
from elasticdl.features.layout import Layout
from elasticdl.worker.alone import Alone
from elasticdl.worker.tables import local_tables
from elasticdl.zoo.ctr.models import build

BATCH, RATE, EPOCHS, PATIENCE = 2048, 1.5e-3, 4, 2
# A model without a net has smaller steps to take, and takes longer.
SLOW = {"lr": (5e-3, 8), "fm": (3e-3, 6)}

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Table:
    """All rows as a model takes them. Those behind `labels` are predicted only."""

    layout: Layout
    features: dict[str, Tensor]
    labels: Tensor
    train: int
    valid: int

    @classmethod
    def of(cls, raw: Raw) -> Table:
        layout, ids, numbers = treated(raw)
        features = {"ids": torch.from_numpy(ids), "numbers": torch.from_numpy(numbers)}
        known = torch.from_numpy(raw.labels[: raw.train + raw.valid])  # the test part's stay where they are
        return cls(layout, features, known, raw.train, raw.valid)

    def some(self, rows: list[int]) -> tuple[dict[str, Tensor], Tensor]:
        places = torch.tensor(rows)
        return {name: column[places] for name, column in self.features.items()}, self.labels[places]


def train(name: str, table: Table, seed: int) -> Floats:
    """The chances of a click that the best weights see in the rows behind the training part."""
    torch.manual_seed(seed)
    rate, epochs = SLOW.get(name, (RATE, EPOCHS))
    model, watcher = build(name, table.layout), build(name, table.layout).eval()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    plan = Plan(records=table.train, global_batch=BATCH, logical_ranks=1, epochs=epochs, seed=seed)
    tables = local_tables(model, optimizer, seed)
    tables.attach(watcher)
    dataset = Dataset(as_source(range(table.train), "rows")).map_batches(table.some)
    factor = 1.0
    job = Alone(model, optimizer, dataset, plan, (), lambda step: rate * factor, torch.device("cpu"), tables)
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
    cuts = [slice(start, min(start + 4 * BATCH, rows)) for start in range(table.train, rows, 4 * BATCH)]
    return torch.cat([model({name: column[cut] for name, column in table.features.items()}) for cut in cuts])
