"""Evaluates a model over a range of records, or predicts them: batch by batch, so that progress can be reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from elasticdl.data.dataset import Batch, Dataset
from elasticdl.data.interface import Indices
from elasticdl.errors import DataError, ModelError
from elasticdl.model import metrics, reduction, tensors
from elasticdl.model.metrics import Metric
from elasticdl.model.reduction import MetricPart

MIN_ALL_BAD = 16  # if all of this many records are bad, the job is wrong, not single records


def evaluate_batches(
    model: nn.Module,
    measured: Mapping[str, Metric],
    dataset: Dataset,
    start: int,
    stop: int,
    minibatch: int,
    device: torch.device,
) -> Iterator[tuple[int, dict[str, MetricPart]]]:
    """Yields after each batch of records [start, stop) the first record not done yet, and the parts of the batch."""
    for _, past, batch in _iterate_batches(dataset, start, stop, minibatch, device):
        parts: dict[str, MetricPart] = {}
        if batch is not None:
            with inference_mode(model):
                predictions = model(batch.features)
                for name, metric in measured.items():
                    values = metrics.measure_parts(name, metric, batch.labels, predictions)
                    parts[reduction.metric_key(name, metric.reduction)] = (values, float(batch.size))
        yield past, parts


class PredictedBatch(NamedTuple):
    """The predictions of records [first, past)."""

    first: int
    past: int
    records: Indices  # those that were predicted: neither the bad ones nor those that a filter removed
    predictions: Any  # a row for each of `records`, on the host; None if there are none
    bad: Mapping[int, str]  # records that could not be read or transformed, and why


def predict_records(
    model: nn.Module,
    dataset: Dataset,
    start: int,
    stop: int,
    minibatch: int,
    device: torch.device,
    *,
    tolerates_bad_rows: bool = False,
) -> Iterator[PredictedBatch]:
    """Yields the predictions of each batch of records [start, stop).

    Raises DataError for the first bad record. With `tolerates_bad_rows`, only if all records of a large batch are bad:
    then not the rows are wrong but the job.
    """
    for first in range(start, stop, minibatch):
        past = min(first + minibatch, stop)
        records, batch, bad = _read_batch(dataset, np.arange(first, past), tolerates_bad_rows)
        predictions = None
        if batch is not None:
            with inference_mode(model):
                features = tensors.move_batch(batch, device).features
                predictions = tensors.to_device(model(features), torch.device("cpu"))
        yield PredictedBatch(first, past, records, predictions, bad)


def _read_batch(dataset: Dataset, records: Indices, is_tolerant: bool) -> tuple[Indices, Batch | None, dict[int, str]]:
    """The batch, its records, and why the other records are bad."""
    bad: dict[int, str] = {}
    try:
        batch = dataset.read_batch(records)
    except DataError as exc:
        if not is_tolerant:
            raise DataError(f"{exc} (--bad_rows=skip or mark predicts the other rows)") from exc
        records, bad = _separate_bad(dataset, records)
        batch = dataset.read_batch(records) if len(records) else None
    if batch is None:
        return records[:0], None, bad
    if batch.size != len(records):
        records = np.array(
            [record for record in records.tolist() if dataset.read_batch(np.array([record])) is not None]
        )
    if batch.size != len(records):
        raise ModelError(
            f"dataset_fn: prediction expects one row for each record; received {batch.size} rows of {len(records)}"
        )
    return records, batch, bad


def _separate_bad(dataset: Dataset, records: Indices) -> tuple[Indices, dict[int, str]]:
    """The good records, and why each of the others is bad. Reads them one by one: a batch does not say which it was."""
    good: list[int] = []
    bad: dict[int, str] = {}
    for record in records.tolist():
        try:
            dataset.read_batch(np.array([record]))
            good.append(record)
        except DataError as exc:
            bad[record] = str(exc)
    if not good and len(records) >= MIN_ALL_BAD:
        first, reason = next(iter(bad.items()))
        raise DataError(f"all of {len(records)} records from record {first} on are bad, not single rows: {reason}")
    return np.array(good, dtype=np.int64), bad


@contextmanager
def inference_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients. Afterwards each part of the model is in the mode it was in before."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, was_training in modes:
            part.training = was_training


def _iterate_batches(
    dataset: Dataset, start: int, stop: int, minibatch: int, device: torch.device
) -> Iterator[tuple[int, int, Batch | None]]:
    for first in range(start, stop, minibatch):
        past = min(first + minibatch, stop)
        batch = dataset.read_valid_batch(np.arange(first, past))
        yield first, past, tensors.move_batch(batch, device) if batch is not None else None
