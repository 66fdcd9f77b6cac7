"""The digits as a script for `elasticdl run`: the model, data and batches of `stamped_digits.py`, for `start.py`.

elasticdl run --workers 2 digits_script.py train.csv BATCH EPOCHS
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import TensorDataset

import elasticdl.torch as elastic

sys.path.insert(0, str(Path(__file__).parent))
import stamped_digits


def main(path: str, batch: int, epochs: int) -> None:
    rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32)
    images = torch.from_numpy(rows[:, :-1]).reshape(-1, 1, 8, 8) / 16
    dataset = TensorDataset(images, torch.from_numpy(rows[:, -1]).long())
    model = stamped_digits.forward()
    optimizer = stamped_digits.optimizer(model.parameters())
    for step in elastic.join(model, optimizer, dataset, global_batch_size=batch, epochs=epochs):
        for features, labels in step:
            step.backward(stamped_digits.loss(labels, model(features)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
