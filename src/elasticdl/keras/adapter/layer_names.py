"""Names for the layers of a Keras model that are the same in every process."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from elasticdl.keras.embeddings.layers import Embedding
from elasticdl.keras.runtime import keras


def list_layers(model: Any) -> list[Any]:
    """All layers, also those inside of others; the model itself first."""
    layers: list[Any] = model._flatten_layers()
    return layers


def stable_names(model: Any, paths: Sequence[str]) -> list[str]:
    """Names for the paths of the model's variables or layers. All layers count, also those without variables."""
    generated = {layer.name for layer in list_layers(model) if is_generated_name(layer.name, type(layer).__name__)}
    generated |= {model.name} if type(model).__name__ == "Functional" else set()
    layer_paths = [f"{layer.path or layer.name}/~" for layer in list_layers(model)]
    return renumber_paths([*layer_paths, *paths], generated)[len(layer_paths) :]


def find_embeddings(model: Any) -> dict[str, Any]:
    """All embedding layers of Keras and of ElasticDL: whether one is on ps changes no name."""
    embeddings = [layer for layer in list_layers(model) if isinstance(layer, keras.layers.Embedding | Embedding)]
    paths = [f"{layer.path or layer.name}/rows" for layer in embeddings]
    plain = [name.removesuffix("/rows") for name in stable_names(model, paths)]
    return dict(zip(plain, embeddings, strict=True))


def is_on_ps(layer: Any) -> bool:
    return isinstance(layer, Embedding) and layer.is_on_ps


def is_generated_name(name: str, kind: str) -> bool:
    """Whether Keras made this name for a layer of the class `kind`."""
    return re.fullmatch(rf"{_to_snake_case(kind)}(_\d+)?", name) is not None


def renumber_paths(paths: Sequence[str], generated: Collection[str]) -> list[str]:
    """A name for each path, all different; the parts in `generated` are numbered again."""
    numbered: dict[tuple[str, ...], str] = {}  # by the path of a part in Keras: its name here
    taken: set[str] = set()
    names: list[str] = []
    for path in paths:
        parts = path.replace(".", "_").split("/")
        name = ""
        for depth, part in enumerate(parts[:-1], start=1):
            key = tuple(parts[:depth])
            if key not in numbered:
                plain = re.sub(r"_\d+$", "", part) if part in generated else part
                numbered[key] = _make_unique(_join_path(name, plain), set(numbered.values()))
            name = numbered[key]
        names.append(_make_unique(_join_path(name, parts[-1]), taken))
        taken.add(names[-1])
    return names


def _to_snake_case(kind: str) -> str:
    """Snake case as Keras makes it: `Conv2D` is `conv2d`, `MaxPooling2D` is `max_pooling2d`."""
    name = re.sub(r"\W+", "", kind)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _join_path(parent: str, part: str) -> str:
    return f"{parent}/{part}" if parent else part


def _make_unique(name: str, taken: set[str]) -> str:
    number, free = 0, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
