"""A model file for tests of whole jobs: `troubled.py`, whose examples are lines of a CSV file."""

from __future__ import annotations

from typing import Any

import torch
from troubled import callbacks as callbacks
from troubled import eval_metrics_fn as eval_metrics_fn
from troubled import forward as forward
from troubled import loss as loss
from troubled import optimizer as optimizer

from elasticdl.data.dataset import Dataset, Metadata
from elasticdl.model.mode import Mode


def dataset_fn(dataset: Dataset, mode: Mode, metadata: Metadata) -> Dataset:
    def parse(record: dict[str, str]) -> Any:
        *features, label = record.values()
        return torch.tensor([float(feature) for feature in features]), torch.tensor(int(label))

    return dataset.map(parse)
