"""Digits of 8 x 8 pixels: a model file is four functions."""

import numpy as np
import torch
from torch import nn

from elasticdl.model.mode import Mode

PIXELS = [f"pixel_{i}" for i in range(64)]


def forward(hidden=64):
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def loss(labels, predictions):
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters, lr=0.1):
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


def dataset_fn(dataset, mode, metadata):
    def example(record):  # a dict from column to text
        image = np.array([record[pixel] for pixel in PIXELS], dtype=np.float32) / 16
        return image if mode is Mode.PREDICTION else (image, int(record["label"]))

    return dataset.map(example)
