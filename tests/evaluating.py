"""Evaluates a model over a range of records in one call, where a job does it batch by batch."""

from __future__ import annotations

import torch
from torch import nn

from elasticdl.data.dataset import Dataset
from elasticdl.model import reduction
from elasticdl.model.contract import Contract
from elasticdl.model.evaluation import evaluate_batches
from elasticdl.model.reduction import MetricPart


def evaluate_records(
    model: nn.Module, contract: Contract, dataset: Dataset, start: int, stop: int, minibatch: int, device: torch.device
) -> dict[str, MetricPart]:
    """The parts of every metric over records [start, stop), by `reduction.metric_key`."""
    sums: dict[str, MetricPart] = {}
    for _, parts in evaluate_batches(model, contract.make_metrics(), dataset, start, stop, minibatch, device):
        sums = reduction.add_parts(sums, parts)
    return sums
