"""A peer of ctr_throughput.py: the same DeepFM in one process of plain PyTorch, its tables as sparse nn.Embedding.

    python torch_ctr.py DATA BATCH STEPS THREADS

Ids are numbered beforehand, as nn.Embedding wants them; batches lie in memory. Prints `RATE SAMPLES_PER_S`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from elasticdl.ctr.models.layers import DeepNetwork
from elasticdl.zoo.ctr.data import FIELDS, NUMBERS, RECORD

COLUMNS, HIDDEN = 16, (256, 128)


class DeepFM(nn.Module):
    def __init__(self, values: int) -> None:
        super().__init__()
        self.weights = nn.Embedding(values, 1, sparse=True)
        self.factors = nn.Embedding(values, COLUMNS, sparse=True)
        self.numbers = nn.Linear(NUMBERS, 1)
        self.deep = DeepNetwork(FIELDS * COLUMNS + NUMBERS, HIDDEN)

    def forward(self, ids: Tensor, numbers: Tensor) -> Tensor:
        factors = self.factors(ids)
        first = self.weights(ids).sum(dim=(1, 2)) + self.numbers(numbers).squeeze(1)
        second = 0.5 * (factors.sum(dim=1).square() - factors.square().sum(dim=1)).sum(dim=1)
        deep: Tensor = self.deep(torch.cat([factors.flatten(1), numbers], dim=1))
        return first + second + deep


def main(data: Path, batch: int, steps: int, threads: int) -> None:
    torch.set_num_threads(threads)
    records = np.fromfile(data, RECORD)
    values, value_numbers = np.unique(records["ids"], return_inverse=True)
    ids = torch.from_numpy(value_numbers.reshape(records["ids"].shape))
    numbers, labels = torch.from_numpy(records["numbers"].copy()), torch.from_numpy(records["label"].copy())
    model = DeepFM(len(values))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    warm_up = 10
    for step in range(warm_up + steps):
        if step == warm_up:
            started_at = time.perf_counter()
        start = step * batch % (len(labels) - batch)
        rows = slice(start, start + batch)
        loss = binary_cross_entropy_with_logits(model(ids[rows], numbers[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"RATE {steps * batch / (time.perf_counter() - started_at)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
