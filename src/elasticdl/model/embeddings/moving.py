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
    """A layer that stands in the place of a plain one."""

    places: list[str]  # more than one where the model has it in several places
    layer: TableLayer
    plain: PlainEmbedding
    weight: Tensor  # the values it was built with

    def drop_weight(self) -> None:
        """The values are on the ps: no need to hold them twice."""
        self.weight = torch.empty(0)
        self.plain.weight = nn.Parameter(torch.empty(0), requires_grad=False)


def move_embeddings(model: nn.Module, which: MovePolicy, least_bytes: int) -> tuple[list[MovedEmbedding], list[str]]:
    """Replace plain embedding layers; what was moved, and a note for each that had to stay.

    `auto` moves those of at least `least_bytes`, `all` every one, `none` none. A layer stays where a ps
    could not do the same: where its weight is used elsewhere, is frozen, or is changed by more than gradients.
    """
    moved, notes = [], []
    for places, plain in _find_plain_layers(model):
        size = plain.weight.numel() * plain.weight.element_size()
        if which == "none" or (which == "auto" and size < least_bytes):
            continue
        if reason := _find_stay_reason(model, plain, places):
            notes.append(f"{places[0]} stays in the workers: {reason}")
            continue
        layer = _make_layer(plain, places[0])
        for place in places:
            _set_submodule(model, place, layer)
        moved.append(MovedEmbedding(places, layer, plain, plain.weight.detach().cpu()))
    return moved, notes


def remove_from_optimizer(optimizer: torch.optim.Optimizer, moved: list[MovedEmbedding]) -> None:
    """The weights of moved layers are no longer the optimizer's."""
    gone = {id(one.plain.weight) for one in moved}
    for group in optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in gone]


def put_plain_back(model: nn.Module, one: MovedEmbedding, weight: Tensor) -> None:
    """The plain layer with this weight in its places again."""
    one.plain.weight = nn.Parameter(weight)
    for place in one.places:
        _set_submodule(model, place, one.plain)


def remove_plain(model: nn.Module, one: MovedEmbedding) -> None:
    """After `put_back`: as before it."""
    for place in one.places:
        _set_submodule(model, place, one.layer)
    one.drop_weight()


def _find_plain_layers(model: nn.Module) -> Iterator[tuple[list[str], PlainEmbedding]]:
    places: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if type(module) in (nn.Embedding, nn.EmbeddingBag) and name:
            places.setdefault(module, []).append(name)
    for module, names in places.items():
        assert isinstance(module, nn.Embedding | nn.EmbeddingBag)
        yield names, module


def _find_stay_reason(model: nn.Module, plain: PlainEmbedding, places: list[str]) -> str:
    """Why this layer cannot move; empty where it can."""
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


def _make_layer(plain: PlainEmbedding, place: str) -> TableLayer:
    # A row that nobody put there, after a loss without a copy, begins as torch's own would.
    options: dict[str, Any] = {
        "name": place,
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


def _set_submodule(model: nn.Module, place: str, module: nn.Module) -> None:
    parent, _, name = place.rpartition(".")
    setattr(model.get_submodule(parent), name, module)
