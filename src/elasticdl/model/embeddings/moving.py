"""Moves plain torch embedding layers to the ps, and back for an export."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from elasticdl.model.embeddings.layers import Embedding, EmbeddingBag, TableLayer
from elasticdl.ps.tables.initializer import Initializer

MovePolicy = Literal["auto", "all", "none"]
PlainEmbedding = nn.Embedding | nn.EmbeddingBag


@dataclass
class MovedEmbedding:
    """A layer with a table that replaces a plain layer."""

    names: list[str]  # more than one if the model holds the layer several times
    layer: TableLayer
    plain: PlainEmbedding
    weight: Tensor  # the values it was built with

    def drop_weight(self) -> None:
        """The values are on the ps: no need to hold them twice."""
        self.weight = torch.empty(0)
        self.plain.weight = nn.Parameter(torch.empty(0), requires_grad=False)


def move_embeddings(model: nn.Module, policy: MovePolicy, min_bytes: int) -> tuple[list[MovedEmbedding], list[str]]:
    """Replace plain embedding layers; returns those that moved, and a note for each that had to stay.

    `auto` moves those of at least `min_bytes`, `all` every one, `none` none. A layer stays if a ps could not do the
    same: if its weight is used elsewhere, is frozen, or is changed by more than gradients.
    """
    moved, notes = [], []
    for names, plain in _find_plain_layers(model):
        size = plain.weight.numel() * plain.weight.element_size()
        if policy == "none" or (policy == "auto" and size < min_bytes):
            continue
        if reason := _find_stay_reason(model, plain):
            notes.append(f"{names[0]} stays in the workers: {reason}")
            continue
        layer = _make_layer(plain, names[0])
        for name in names:
            _set_submodule(model, name, layer)
        moved.append(MovedEmbedding(names, layer, plain, plain.weight.detach().cpu()))
    return moved, notes


def remove_from_optimizer(optimizer: torch.optim.Optimizer, moved: list[MovedEmbedding]) -> None:
    """Remove the weights of moved layers from the optimizer."""
    gone = {id(embedding.plain.weight) for embedding in moved}
    for group in optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in gone]


def put_plain_back(model: nn.Module, moved: MovedEmbedding, weight: Tensor) -> None:
    """Put the plain layer back into the model, with this weight."""
    moved.plain.weight = nn.Parameter(weight)
    for name in moved.names:
        _set_submodule(model, name, moved.plain)


def remove_plain(model: nn.Module, moved: MovedEmbedding) -> None:
    """The inverse of `put_plain_back`."""
    for name in moved.names:
        _set_submodule(model, name, moved.layer)
    moved.drop_weight()


def _find_plain_layers(model: nn.Module) -> Iterator[tuple[list[str], PlainEmbedding]]:
    names_by_layer: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if type(module) in (nn.Embedding, nn.EmbeddingBag) and name:
            names_by_layer.setdefault(module, []).append(name)
    for module, names in names_by_layer.items():
        assert isinstance(module, nn.Embedding | nn.EmbeddingBag)
        yield names, module


def _find_stay_reason(model: nn.Module, plain: PlainEmbedding) -> str:
    """Why this layer cannot move; empty if it can."""
    owners = {
        id(module): name
        for name, module in model.named_modules()
        if any(parameter is plain.weight for parameter in module._parameters.values())
    }
    others = [name or "the model" for identity, name in owners.items() if identity != id(plain)]
    if others:
        return f"its weight is also that of {', '.join(others)}"
    if not plain.weight.requires_grad:
        return "its weight is frozen"
    if plain.weight.dtype != torch.float32:
        return f"its weight is {str(plain.weight.dtype).removeprefix('torch.')}; a ps holds float32"
    if plain.max_norm is not None or plain.scale_grad_by_freq:
        return "max_norm and scale_grad_by_freq are not for a ps"
    if isinstance(plain, nn.EmbeddingBag) and plain.mode not in ("sum", "mean"):
        return f"a ps has no bags of mode {plain.mode}"
    if plain.padding_idx is not None and bool(plain.weight[plain.padding_idx].any()):
        return "its padding is not zero"
    if plain._forward_hooks or plain._forward_pre_hooks or plain._backward_hooks:
        return "it has hooks"
    return ""


def _make_layer(plain: PlainEmbedding, name: str) -> TableLayer:
    # A row that is missing, after ps were lost without a copy, begins as torch's own would.
    options: dict[str, Any] = {
        "name": name,
        "input_dim": plain.num_embeddings,
        "initializer": Initializer(kind="normal", mean=0.0, deviation=1.0),
        "padding_idx": plain.padding_idx,
    }
    if isinstance(plain, nn.EmbeddingBag):
        options |= {"combiner": plain.mode, "include_last_offset": plain.include_last_offset}
        built: TableLayer = EmbeddingBag(plain.embedding_dim, **options)
    else:
        built = Embedding(plain.embedding_dim, **options)
    return built.train(plain.training)


def _set_submodule(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, module)
