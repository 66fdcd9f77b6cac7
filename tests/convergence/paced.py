"""The zoo's Wide & Deep, whose batches are slow while the file SLOW_FILE exists: workers can join and leave then."""

from __future__ import annotations

import os
import time
from pathlib import Path

from elasticdl.data.dataset import Dataset, Metadata
from elasticdl.model.mode import Mode
from elasticdl.zoo.ctr import ctr
from elasticdl.zoo.ctr.ctr import custom_data_reader, eval_metrics_fn, loss, optimizer, wide_and_deep

__all__ = ["custom_data_reader", "dataset_fn", "eval_metrics_fn", "loss", "optimizer", "wide_and_deep"]

PAUSE_S = 0.5
SLOW_FILE = Path(os.environ.get("SLOW_FILE", "/nowhere"))


def dataset_fn(dataset: Dataset, mode: Mode, metadata: Metadata) -> Dataset:
    def paced(batch: object) -> object:
        if mode is Mode.TRAINING and SLOW_FILE.exists():
            time.sleep(PAUSE_S)
        return batch

    return ctr.dataset_fn(dataset, mode, metadata).map_batches(paced)
