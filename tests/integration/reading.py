"""A training script that logs the records it reads: reading.py KIND SEEN OUTPUT NUM_WORKERS [CONTEXT]

Each batch appends a line {"step", "epoch", "numbers"} to a file of this process in the directory SEEN.
While the file SEEN/slow exists each item takes longer.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler, get_worker_info

import elasticdl.torch as elastic

RECORDS, EPOCHS, BATCH = 100, 3, 8


def item(number: int, slow: Path) -> dict[str, Any]:
    """A record with augmentation from all three sources of random numbers."""
    if slow.exists():
        time.sleep(0.01)
    noise = torch.rand(4) + random.random() + float(np.random.rand())
    return {"features": torch.full((4,), number / RECORDS) + 0.01 * noise, "number": number}


class Items(Dataset[dict[str, Any]]):
    def __init__(self, slow: Path) -> None:
        self.slow = slow

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, number: int) -> dict[str, Any]:
        return item(number, self.slow)


class Stream(IterableDataset[dict[str, Any]]):
    def __init__(self, slow: Path) -> None:
        self.slow = slow

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        assert worker is not None
        for number in range(worker.id, RECORDS, worker.num_workers):
            yield item(number, self.slow)


def main(kind: str, seen: str, output: str, num_workers: str, context: str = "") -> None:
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
    slow = Path(seen) / "slow"
    how: dict[str, Any] = {"batch_size": BATCH, "num_workers": int(num_workers)}
    if context:
        how["multiprocessing_context"] = context
    more: dict[str, Any] = {}
    if kind == "stream":
        data, more = DataLoader(Stream(slow), **how), {"records_per_epoch": RECORDS}
    elif kind == "sampled":
        weights = [1.0 + number % 3 for number in range(RECORDS)]
        data = DataLoader(Items(slow), sampler=WeightedRandomSampler(weights, RECORDS), **how)
    else:
        data = DataLoader(Items(slow), shuffle=True, **how)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    job = elastic.join(model, optimizer, data, epochs=EPOCHS, seed=5, logical_ranks=4, **more)
    with (Path(seen) / f"{os.getpid()}.jsonl").open("w") as lines:
        for step in job:
            for batch in step:
                line = {"step": step.number, "epoch": step.epoch, "numbers": batch["number"].tolist()}
                print(json.dumps(line), file=lines, flush=True)
                step.backward(model(batch["features"]).pow(2).mean())
    if job.is_first:
        save_file(model.state_dict(), output)


if __name__ == "__main__":
    main(*sys.argv[1:])
