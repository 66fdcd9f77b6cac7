"""A causal transformer (Vaswani et al., Attention Is All You Need, 2017) that learns to write, character by character.

elasticdl train --model_zoo=src/elasticdl/zoo --model_def=text.text.forward \
    --training_data=data/train.parquet --validation_data=data/test.parquet

The text is Python's own documentation, without a download: python -m elasticdl.zoo.text.data data
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, scaled_dot_product_attention

from elasticdl.data.dataset import Dataset, Metadata
from elasticdl.model.callbacks import Callback, ClipGradientNorm
from elasticdl.model.metrics import Accuracy, Metric, Perplexity
from elasticdl.model.mode import Mode

CHARACTERS = 128  # ASCII: a character is its own token
WARMUP_STEPS = 100


class CausalSelfAttention(nn.Module):
    """Multi-head self-attention; a position sees itself and those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.queries_keys_values(x).view(batch, length, 3, self.heads, width // self.heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(queries, keys, values, is_causal=True)
        mixed: Tensor = self.output(attended.transpose(1, 2).reshape(batch, length, width))
        return mixed


class TransformerBlock(nn.Module):
    """Self-attention and a feed-forward net, each with a residual connection."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), CausalSelfAttention(width, heads), nn.Dropout(dropout))
        self.neurons = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        added: Tensor = x + self.neurons(x)
        return added


class Transformer(nn.Module):
    """Returns scores of the next character at every position. Input and output share their embedding."""

    def __init__(self, width: int, heads: int, layers: int, context: int, dropout: float) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        # Of equal size: larger position embeddings would hide the characters for the first hundred steps.
        for embedding in (self.characters, self.positions):
            nn.init.normal_(embedding.weight, std=width**-0.5)

    def forward(self, text: Tensor) -> Tensor:
        x = self.characters(text) + self.positions.weight[: text.shape[1]]
        return linear(self.norm(self.blocks(x)), self.characters.weight)


def forward(width: int = 64, heads: int = 4, layers: int = 2, context: int = 64, dropout: float = 0.1) -> nn.Module:
    return Transformer(width, heads, layers, context, dropout)


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return cross_entropy(predictions.reshape(-1, CHARACTERS), labels.reshape(-1))


def optimizer(parameters: Iterable[Tensor], lr: float = 0.003) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.98))


def learning_rate(step: int) -> float:
    """Rises linearly, then falls with the root of the step."""
    return 0.004 * min((step + 1) / WARMUP_STEPS, math.sqrt(WARMUP_STEPS / (step + 1)))


def dataset_fn(dataset: Dataset, mode: Mode, metadata: Metadata) -> Dataset:
    def batch(columns: dict[str, Any]) -> Any:
        text = np.stack([np.frombuffer(line.encode("ascii"), dtype=np.uint8) for line in columns["text"]])
        tokens = text.astype(np.int64)
        features, labels = tokens[:, :-1], tokens[:, 1:]
        return features if mode is Mode.PREDICTION else (features, labels)

    return dataset.map_batches(batch)


def eval_metrics_fn() -> dict[str, Metric]:
    return {"accuracy": Accuracy(), "perplexity": Perplexity()}


def callbacks() -> list[Callback]:
    return [ClipGradientNorm(1.0)]
