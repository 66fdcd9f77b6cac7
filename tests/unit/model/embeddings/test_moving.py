from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from elasticdl.errors import ModelError
from tests import native

native.require()

from elasticdl.model.embeddings import moving  # noqa: E402
from elasticdl.model.embeddings.layers import Embedding, EmbeddingBag  # noqa: E402


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Embedding(10, 2)
        self.large = nn.Embedding(1000, 4, padding_idx=3)
        self.parts = nn.ModuleDict({"bags": nn.EmbeddingBag(500, 8, mode="sum"), "again": self.large})
        self.head = nn.Linear(4, 1)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("none", []), ("auto", ["large", "parts.bags"]), ("all", ["small", "large", "parts.bags"])],
)
def test_plain_layers_move_by_size(policy: Any, expected: list[str]) -> None:
    moved, notes = moving.move_embeddings(Model(), policy, min_bytes=1000 * 4 * 4)

    assert [moved_layer.layer.table for moved_layer in moved] == expected
    assert notes == []


def test_a_layer_in_two_places_moves_from_both_and_comes_back_to_both() -> None:
    model = Model()
    before = set(model.state_dict())
    moved, _ = moving.move_embeddings(model, "all", 0)
    (large,) = [moved_layer for moved_layer in moved if moved_layer.layer.table == "large"]

    assert model.large is model.parts["again"] and isinstance(model.large, Embedding)
    assert isinstance(model.parts["bags"], EmbeddingBag) and model.parts["bags"].combiner == "sum"
    assert model.large.padding_idx == 3 and model.large.input_dim == 1000
    assert set(model.state_dict()) == {"head.weight", "head.bias"}

    for moved_layer in moved:
        moving.put_plain_back(model, moved_layer, moved_layer.weight)

    assert set(model.state_dict()) == before
    assert model.large is model.parts["again"]
    assert torch.equal(model.large.weight, large.weight)


def test_a_moved_weight_is_removed_from_the_optimizer() -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moved, _ = moving.move_embeddings(model, "all", 0)

    moving.remove_from_optimizer(optimizer, moved)

    assert [tuple(parameter.shape) for parameter in optimizer.param_groups[0]["params"]] == [(1, 4), (1,)]


def tied() -> nn.Module:
    model = nn.ModuleDict({"words": nn.Embedding(10, 4), "out": nn.Linear(4, 10, bias=False)})
    model["out"].weight = model["words"].weight
    return model


def built(**options: Any) -> nn.Module:
    return nn.ModuleDict({"words": nn.Embedding(10, 4, **options)})


def frozen() -> nn.Module:
    return nn.ModuleDict({"words": nn.Embedding.from_pretrained(torch.ones(3, 2))})


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (tied(), "its weight is also that of out"),
        (frozen(), "its weight is frozen"),
        (built(max_norm=1.0), "max_norm"),
        (built(scale_grad_by_freq=True), "scale_grad_by_freq"),
        (built(dtype=torch.float64), "its weight is float64"),
        (nn.ModuleDict({"words": nn.EmbeddingBag(10, 4, mode="max")}), "no bags of mode max"),
    ],
)
def test_a_layer_that_a_ps_could_not_replace_stays_and_a_note_says_why(model: nn.Module, why: str) -> None:
    moved, (note,) = moving.move_embeddings(model, "all", 0)

    assert moved == []
    assert note.startswith("words stays in the workers: ") and why in note


def test_the_weight_of_a_moved_layer_cannot_be_used_directly() -> None:
    model = Model()
    moving.move_embeddings(model, "all", 0)

    with pytest.raises(ModelError, match=r"Embedding small: expected to be called.*--embedding_on_ps=none"):
        _ = model.small.weight
