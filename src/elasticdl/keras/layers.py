"""The layers of a Keras model, under names that are the same in every process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticdl.keras import naming
from elasticdl.keras.embedding import Embedding
from elasticdl.keras.runtime import keras


def of(model: Any) -> list[Any]:
    """All layers, those inside others too; the model itself first."""
    found: list[Any] = model._flatten_layers()
    return found


def names(model: Any, paths: Sequence[str]) -> list[str]:
    """Names for paths of the model's variables or layers. All layers count, also those without variables."""
    made_up = {layer.name for layer in of(model) if naming.is_made_up(layer.name, type(layer).__name__)}
    made_up |= {model.name} if type(model).__name__ == "Functional" else set()
    every = [f"{layer.path or layer.name}/~" for layer in of(model)]
    return naming.stable([*every, *paths], made_up)[len(every) :]


def embeddings(model: Any) -> dict[str, Any]:
    """All embedding layers, plain ones and ours alike: whether one lies on ps changes no name."""
    found = [layer for layer in of(model) if isinstance(layer, keras.layers.Embedding | Embedding)]
    paths = [f"{layer.path or layer.name}/rows" for layer in found]
    plain = [name.removesuffix("/rows") for name in names(model, paths)]
    return dict(zip(plain, found, strict=True))


def is_on_ps(layer: Any) -> bool:
    return isinstance(layer, Embedding) and layer.is_on_ps
