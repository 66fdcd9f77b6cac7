"""The Wide & Deep of the zoo, whose batches take a moment longer: workers can come and go while it trains."""

from __future__ import annotations

import time

from elasticdl.data.dataset import Dataset, Metadata
from elasticdl.model.mode import Mode
from elasticdl.zoo.ctr import ctr
from elasticdl.zoo.ctr.ctr import custom_data_reader, eval_metrics_fn, loss, optimizer, wide_and_deep

__all__ = ["custom_data_reader", "dataset_fn", "eval_metrics_fn", "loss", "optimizer", "wide_and_deep"]

PAUSE_S = 0.04


def dataset_fn(dataset: Dataset, mode: Mode, metadata: Metadata) -> Dataset:
    def paced(batch: object) -> object:
        time.sleep(PAUSE_S if mode is Mode.TRAINING else 0.0)
        return batch

    return ctr.dataset_fn(dataset, mode, metadata).map_batches(paced)
