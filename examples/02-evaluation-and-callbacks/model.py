"""The same digits, measured while they are learned: metrics, a schedule, callbacks."""

import numpy as np
import torch
from torch import nn

from elasticdl.model.callbacks import ClipGradientNorm, EarlyStopping
from elasticdl.model.metrics import Accuracy
from elasticdl.model.mode import Mode

PIXELS = [f"pixel_{i}" for i in range(64)]


def forward(hidden=64):
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def loss(labels, predictions):
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters, lr=0.1):
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


def dataset_fn(dataset, mode, metadata):
    def example(record):
        image = np.array([record[pixel] for pixel in PIXELS], dtype=np.float32) / 16
        return image if mode is Mode.PREDICTION else (image, int(record["label"]))

    return dataset.map(example)


# New from here on.


def eval_metrics_fn():
    """A Metric adds up exactly over workers; a plain function of a batch is averaged by records."""
    return {"accuracy": Accuracy(), "confidence": confidence}


def confidence(labels, predictions):
    return predictions.softmax(-1).amax(-1).mean()


def learning_rate(step):
    """The rate of each step; it replaces the optimizer's own."""
    return 0.1 / (1 + step / 200)


def callbacks():
    """The best checkpoint is kept, and three evaluations without progress end the training."""
    return [ClipGradientNorm(5.0), EarlyStopping("accuracy", patience=3)]
