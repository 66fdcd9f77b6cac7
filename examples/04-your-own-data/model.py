"""Your own kind of data: `custom_data_reader` returns any dataset with a length and items by index."""

import math

import numpy as np
import torch
from torch import nn

from elasticdl.model.mode import Mode


class Waves:
    """Noisy sine waves of two frequencies, created on access. Item i is always the same."""

    def __init__(self, first, records, points):
        self.first, self.records, self.points = first, records, points

    def __len__(self):
        return self.records

    def __getitem__(self, index):
        numbers = np.random.default_rng(self.first + index)
        label = int(numbers.integers(2))
        time = np.linspace(0, 2 * math.pi, self.points)
        wave = np.sin((2 + label) * time + numbers.uniform(0, 2 * math.pi))
        return (wave + numbers.normal(0, 0.5, self.points)).astype(np.float32), label


def custom_data_reader(data_path, records=2000, points=64):
    """`data_path` is the value of --training_data; the other arguments come from --data_reader_params."""
    first = {"training": 0, "validation": 1_000_000}[data_path]
    return Waves(first, records, points)


def forward(channels=8):
    return nn.Sequential(
        nn.Conv1d(1, channels, kernel_size=9, padding=4),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(16),
        nn.Flatten(),
        nn.Linear(16 * channels, 2),
    )


def loss(labels, predictions):
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters, lr=0.005):
    return torch.optim.Adam(parameters, lr=lr)


def dataset_fn(dataset, mode, metadata):
    """Items come from the dataset. A complete batch at once is faster than one record after the other."""

    def batch(items):
        waves = np.stack([wave for wave, _ in items])[:, None]
        return waves if mode is Mode.PREDICTION else (waves, np.array([label for _, label in items]))

    return dataset.map_batches(batch)


def eval_metrics_fn():
    return {"accuracy": lambda labels, predictions: (predictions.argmax(-1) == labels).float().mean()}
