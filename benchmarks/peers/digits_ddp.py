"""The digits as a script for torchrun: DistributedDataParallel over gloo, the same model, data and batches.

torchrun --nproc_per_node 2 digits_ddp.py train.csv BATCH EPOCHS
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
import stamped_digits


def load(path: str) -> TensorDataset:
    with open(path, newline="", encoding="utf-8") as file:
        rows = np.array(list(csv.reader(file))[1:], dtype=np.float32)
    images = torch.from_numpy(rows[:, :-1]).reshape(-1, 1, 8, 8) / 16
    return TensorDataset(images, torch.from_numpy(rows[:, -1]).long())


def main(path: str, batch: int, epochs: int) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dataset = load(path)
    sampler: DistributedSampler[object] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=batch // dist.get_world_size(), sampler=sampler)
    model = DistributedDataParallel(stamped_digits.forward())
    optimizer = stamped_digits.optimizer(model.parameters())
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            stamped_digits.loss(labels, model(images)).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
