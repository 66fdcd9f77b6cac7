"""A stream whose dataset has a state: stateful_stream.py HABIT OUTPUT [--slow FILE]

HABIT is the number of loader processes. Each worker appends the place in its stream of every record that is read, by it
or by one of its loader processes, to OUTPUT-read-<pid of the worker>, and writes its weights as habits.py does.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import elasticdl.torch as elastic

RECORDS = 384

parser = argparse.ArgumentParser()
parser.add_argument("habit")
parser.add_argument("output")
parser.add_argument("--slow", default="/nowhere")
options = parser.parse_args()
slow = Path(options.slow)


class Numbers(IterableDataset[tuple[torch.Tensor, int]]):
    position = 0

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        worker = get_worker_info()
        assert worker is not None
        pid = os.getppid() if multiprocessing.parent_process() else os.getpid()
        while (number := self.position * worker.num_workers + worker.id) < RECORDS:
            with open(f"{options.output}-read-{pid}", "a") as file:
                file.write(f"{self.position}\n")
            self.position += 1
            yield torch.randn(6, generator=torch.Generator().manual_seed(number)), number % 2

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "shard": (0, None), "tensor": torch.tensor([self.position])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["shard"] == (0, None) and int(state["tensor"]) == state["position"]
        self.position = state["position"]


torch.manual_seed(3)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(Numbers(), batch_size=12, num_workers=int(options.habit))
job = elastic.join(model, optimizer, loader, records_per_epoch=RECORDS, seed=5, logical_ranks=4)
for step in job:
    for inputs, targets in step:
        if slow.exists():
            time.sleep(0.2)
        step.backward(nn.functional.cross_entropy(model(inputs), targets))
tensors = {name: value.clone() for name, value in model.state_dict().items()}
tensors["first"] = torch.tensor([int(job.is_first)])
save_file(tensors, f"{options.output}-{job.worker}.safetensors")
