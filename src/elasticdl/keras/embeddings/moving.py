"""Moves plain Keras embedding layers to the ps; an export rebuilds the model with plain layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from elasticdl.keras.embeddings import optimizer_rules
from elasticdl.keras.embeddings.layers import Embedding
from elasticdl.keras.embeddings.placement import EmbeddingPlacement
from elasticdl.keras.runtime import keras


class MoveResult(NamedTuple):
    model: Any
    notes: list[str]  # one for each layer that had to stay


def move_embeddings(model: Any, placement: EmbeddingPlacement) -> MoveResult:
    """The model with ElasticDL's layers instead of the plain ones that move; it may be another object."""
    candidates = [layer for layer in _find_plain_layers(model) if _must_move(layer, placement)]
    stays = {layer.name: reason for layer in candidates if (reason := _find_stay_reason(layer))}
    moves = {id(layer) for layer in candidates if layer.name not in stays}
    notes = [f"{name} stays in the workers: {reason}" for name, reason in stays.items()]
    if moves and not _can_be_cloned(model):
        reason = "the model is a class of its own, in which only elasticdl.keras.Embedding can be on ps"
        return MoveResult(model, [*notes, *(f"{layer.name} stays in the workers: {reason}" for layer in candidates)])
    if moves:
        model = keras.models.clone_model(model, clone_function=lambda layer: _clone_layer(layer, moves))
    return MoveResult(model, notes)


def make_portable(model: Any) -> Any | None:
    """The model with plain layers of Keras instead of ElasticDL's, for users without ElasticDL; None if impossible.

    Returns `model` itself if it has no layers of ElasticDL.
    """
    ours = [layer for layer in model._flatten_layers() if isinstance(layer, Embedding)]
    if not ours:
        return model
    if not _can_be_cloned(model) or any(layer.combiner or layer.embeddings is None for layer in ours):
        return None
    clone = keras.models.clone_model(model, clone_function=_clone_as_plain)
    clone.set_weights(model.get_weights())
    return clone


def _find_plain_layers(model: Any) -> Iterator[Any]:
    return (layer for layer in model._flatten_layers() if type(layer) is keras.layers.Embedding)


def _must_move(layer: Any, placement: EmbeddingPlacement) -> bool:
    size = layer.input_dim * layer.output_dim * 4
    return placement.move_policy == "all" or (placement.move_policy == "auto" and size >= placement.min_bytes)


def _find_stay_reason(layer: Any) -> str:
    """Returns the reason why this layer cannot move; empty if it can."""
    if not layer.trainable:
        return "it is frozen"
    if layer.embeddings_regularizer is not None or layer.embeddings_constraint is not None:
        return "a ps has no regularizers and constraints"
    if getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None):
        return "it is adapted or quantized"
    if optimizer_rules.table_initializer(layer.embeddings_initializer) is None:
        return f"a ps does not know the initializer {type(layer.embeddings_initializer).__name__}"
    return ""


def _can_be_cloned(model: Any) -> bool:
    return isinstance(model, keras.Sequential) or type(model).__name__ == "Functional"


def _clone_layer(layer: Any, moves: set[int]) -> Any:
    if id(layer) not in moves:
        return layer.__class__.from_config(layer.get_config())
    return Embedding(
        layer.output_dim, layer.input_dim, layer.embeddings_initializer, mask_zero=layer.mask_zero, name=layer.name
    )


def _clone_as_plain(layer: Any) -> Any:
    if not isinstance(layer, Embedding):
        return layer.__class__.from_config(layer.get_config())
    return keras.layers.Embedding(
        layer.input_dim, layer.output_dim, layer.embeddings_initializer, mask_zero=layer.mask_zero, name=layer.name
    )
