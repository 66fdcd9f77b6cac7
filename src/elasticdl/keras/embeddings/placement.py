"""Where the rows of embedding layers are placed; layers read it while a model is built."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

MovePolicy = Literal["auto", "all", "none"]


@dataclass(frozen=True, slots=True)
class EmbeddingPlacement:
    """`on_ps`: layers of ElasticDL have tables there, and plain ones as `which` says. Else all lie in the model."""

    on_ps: bool = False
    move_policy: MovePolicy = "none"  # plain layers that move
    min_bytes: int = 0  # auto: those of at least so many


IN_MODEL = EmbeddingPlacement()
_current: ContextVar[EmbeddingPlacement] = ContextVar("placing", default=IN_MODEL)
_is_building: ContextVar[bool] = ContextVar("is_building", default=False)


def current_placement() -> EmbeddingPlacement:
    return _current.get()


@contextmanager
def use_placement(wanted: EmbeddingPlacement) -> Iterator[None]:
    """Layers that are built meanwhile are placed so."""
    token = _current.set(wanted)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def build_only() -> Iterator[None]:
    """Meanwhile models are called for the sake of their shapes: rows are not looked up, since nobody has any yet."""
    token = _is_building.set(True)
    try:
        yield
    finally:
        _is_building.reset(token)


def is_building() -> bool:
    return _is_building.get()
