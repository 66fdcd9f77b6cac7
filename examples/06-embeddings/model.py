"""Clicks of users on items. The ids are hashes, and their number is not known in advance."""

import hashlib

import numpy as np
import torch
from torch import nn

import elasticdl.torch as elastic
from elasticdl.data.dataset import Mode


def hash_name(text):
    """Returns the id of a name: a hash of 64 bits."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


class Clicks:
    """Some users like some tags; they click on items that have them. Record i is always the same."""

    def __init__(self, first, records):
        self.first, self.records = first, records

    def __len__(self):
        return self.records

    def __getitem__(self, index):
        random = np.random.default_rng(self.first + index)
        user, item, tag = (int(random.integers(count)) for count in (20, 60, 5))
        clicked = (user % 5 == tag) or random.random() < 0.05
        ids = np.array([hash_name(f"user {user}"), hash_name(f"item {item}"), hash_name(f"tag {tag}")])
        return ids, np.float32(clicked)


def custom_data_reader(data_path, records=4000):
    return Clicks({"training": 0, "validation": 1_000_000}[data_path], records)


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.user = elastic.Embedding(columns, initializer="normal")
        self.seen = elastic.EmbeddingBag(columns, initializer="normal", combiner="mean", optimizer="adagrad")
        self.dense = nn.Sequential(nn.Linear(2 * columns, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids):
        rows = torch.cat([self.user(ids[:, 0]), self.seen(ids[:, 1:])], dim=1)
        return self.dense(rows).squeeze(1)


def forward(columns=8):
    return Model(columns)


def loss(labels, predictions):
    return nn.functional.binary_cross_entropy_with_logits(predictions, labels)


def optimizer(parameters, lr=0.03):
    return torch.optim.Adam(parameters, lr=lr)


def dataset_fn(dataset, mode, metadata):
    return dataset.map(lambda record: record[0] if mode is Mode.PREDICTION else record)


def eval_metrics_fn():
    return {"accuracy": lambda labels, predictions: ((predictions > 0) == (labels > 0.5)).float().mean()}
