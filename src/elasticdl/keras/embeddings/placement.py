"""The placement of the rows of embedding layers, which layers read while a model is built."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

MovePolicy = Literal["auto", "all", "none"]


@dataclass(frozen=True, slots=True)
class EmbeddingPlacement:
    """With `on_ps`, layers of ElasticDL have tables on ps, and plain ones as `move_policy` says; else none has."""

    on_ps: bool = False
    move_policy: MovePolicy = "none"  # plain layers that move
    min_bytes: int = 0  # auto: plain layers of at least this many bytes move


IN_MODEL = EmbeddingPlacement()
_current: ContextVar[EmbeddingPlacement] = ContextVar("placement", default=IN_MODEL)
_is_building: ContextVar[bool] = ContextVar("is_building", default=False)


def current_placement() -> EmbeddingPlacement:
    return _current.get()


@contextmanager
def use_placement(placement: EmbeddingPlacement) -> Iterator[None]:
    """Build layers with this placement."""
    token = _current.set(placement)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def build_only() -> Iterator[None]:
    """Context in which models are called for their shapes only: rows, which do not exist yet, are not looked up."""
    token = _is_building.set(True)
    try:
        yield
    finally:
        _is_building.reset(token)


def is_building() -> bool:
    return _is_building.get()
