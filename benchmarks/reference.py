"""The plain loop without ElasticDL that ends with the same bits: what a job computes, in thirty lines."""

from __future__ import annotations

import zlib

import torch
from models import blocks
from torch.nn.utils import parameters_to_vector, vector_to_parameters

BATCH, RANKS, EPOCHS, SEED = 64, 4, 1, 0


def train(batch: int = BATCH, ranks: int = RANKS, epochs: int = EPOCHS, seed: int = SEED) -> torch.nn.Module:
    """`ranks` slices of every batch, their gradients summed in pairs, pairs of pairs, and so on."""
    torch.set_num_threads(1)
    torch.manual_seed(zlib.crc32(f"{seed}".encode()))
    data, model = blocks.MadeUp(), blocks.forward()
    optimizer = blocks.optimizer(model.parameters())
    starts = [start for _ in range(epochs) for start in range(0, len(data), batch)]
    for step, start in enumerate(starts):
        features, labels = data.features[start : start + batch], data.labels[start : start + batch]
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        sums, kept = [], before
        for rank, (x, y) in enumerate(zip(features.tensor_split(ranks), labels.tensor_split(ranks), strict=True)):
            _set_buffers(model, before)
            torch.manual_seed(zlib.crc32(f"{seed}/{step}/{rank}".encode()))
            value = blocks.loss(y, model(x)) * (len(y) / len(labels))
            sums.append(parameters_to_vector(torch.autograd.grad(value, list(model.parameters()))))
            if rank == 0:
                kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
        while len(sums) > 1:
            sums = [sum(sums[i + 1 : i + 2], start=sums[i]) for i in range(0, len(sums), 2)]
        _set_gradients(model, sums[0])
        optimizer.step()
        _set_buffers(model, kept)
    return model


def _set_buffers(model: torch.nn.Module, values: dict[str, torch.Tensor]) -> None:
    for name, buffer in model.named_buffers():
        buffer.copy_(values[name])


def _set_gradients(model: torch.nn.Module, flat: torch.Tensor) -> None:
    gradients = [torch.empty_like(p) for p in model.parameters()]
    vector_to_parameters(flat, gradients)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
