"""A model over a range of records: what it scores, and what it predicts. Batch by batch, so progress can be told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from elasticdl.data.dataset import Batch, Dataset
from elasticdl.model import metrics, reduction, tensors
from elasticdl.model.contract import Contract
from elasticdl.model.metrics import Metric
from elasticdl.model.reduction import Part


def evaluate_records(
    model: nn.Module, contract: Contract, dataset: Dataset, start: int, stop: int, minibatch: int, device: torch.device
) -> dict[str, Part]:
    """The parts of every metric over records [start, stop), by `reduction.key`."""
    sums: dict[str, Part] = {}
    for _, parts in evaluate_batches(model, contract.metrics(), dataset, start, stop, minibatch, device):
        sums = reduction.add(sums, parts)
    return sums


def evaluate_batches(
    model: nn.Module,
    measured: Mapping[str, Metric],
    dataset: Dataset,
    start: int,
    stop: int,
    minibatch: int,
    device: torch.device,
) -> Iterator[tuple[int, dict[str, Part]]]:
    """After each batch of records [start, stop): the first record not done yet, and the parts of the batch."""
    for _, past, batch in _batches(dataset, start, stop, minibatch, device):
        parts: dict[str, Part] = {}
        if batch is not None:
            with inference(model):
                predictions = model(batch.features)
                for name, metric in measured.items():
                    values = metrics.parts_of(name, metric, batch.labels, predictions)
                    parts[reduction.key(name, metric.reduction)] = (values, float(batch.size))
        yield past, parts


def predict_records(
    model: nn.Module, dataset: Dataset, start: int, stop: int, minibatch: int, device: torch.device
) -> Iterator[tuple[int, int, Any]]:
    """After each batch of records [start, stop): where it began, where it ended, its predictions on the host.

    A batch of which `filter` left nothing predicts None.
    """
    for first, past, batch in _batches(dataset, start, stop, minibatch, device):
        predictions = None
        if batch is not None:
            with inference(model):
                predictions = tensors.to_device(model(batch.features), torch.device("cpu"))
        yield first, past, predictions


@contextmanager
def inference(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; each part of the model then returns to the mode it was in."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, was_training in modes:
            part.training = was_training


def _batches(
    dataset: Dataset, start: int, stop: int, minibatch: int, device: torch.device
) -> Iterator[tuple[int, int, Batch | None]]:
    for first in range(start, stop, minibatch):
        past = min(first + minibatch, stop)
        batch = dataset.batch(np.arange(first, past))
        yield first, past, tensors.on_device(batch, device) if batch is not None else None
