"""Trains in a plain loop without ElasticDL, to the same bits as a job: what a job computes, in thirty lines."""

from __future__ import annotations

import zlib

import torch
from models import blocks
from torch.nn.utils import parameters_to_vector, vector_to_parameters

BATCH, RANKS, EPOCHS, SEED = 64, 4, 1, 0


def train(batch: int = BATCH, ranks: int = RANKS, epochs: int = EPOCHS, seed: int = SEED) -> torch.nn.Module:
    """Cuts every batch into `ranks` slices and sums their gradients in pairs, then in pairs of pairs, and so on."""
    torch.set_num_threads(1)
    torch.manual_seed(zlib.crc32(f"{seed}".encode()))
    data, model = blocks.SyntheticImages(), blocks.forward()
    optimizer = blocks.optimizer(model.parameters())
    batch_starts = [start for _ in range(epochs) for start in range(0, len(data), batch)]
    for step, start in enumerate(batch_starts):
        features, labels = data.features[start : start + batch], data.labels[start : start + batch]
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        sums, buffers_of_first_rank = [], before
        for rank, (x, y) in enumerate(zip(features.tensor_split(ranks), labels.tensor_split(ranks), strict=True)):
            _set_buffers(model, before)
            torch.manual_seed(zlib.crc32(f"{seed}/{step}/{rank}".encode()))
            loss = blocks.loss(y, model(x)) * (len(y) / len(labels))
            sums.append(parameters_to_vector(torch.autograd.grad(loss, list(model.parameters()))))
            if rank == 0:
                buffers_of_first_rank = {name: buffer.clone() for name, buffer in model.named_buffers()}
        while len(sums) > 1:
            sums = [sum(sums[i + 1 : i + 2], start=sums[i]) for i in range(0, len(sums), 2)]
        _set_gradients(model, sums[0])
        optimizer.step()
        _set_buffers(model, buffers_of_first_rank)
    return model


def _set_buffers(model: torch.nn.Module, values: dict[str, torch.Tensor]) -> None:
    for name, buffer in model.named_buffers():
        buffer.copy_(values[name])


def _set_gradients(model: torch.nn.Module, flat: torch.Tensor) -> None:
    gradients = [torch.empty_like(p) for p in model.parameters()]
    vector_to_parameters(flat, gradients)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
