"""Measures squared norms of gradients while they are computed, to estimate the noise of the gradient.

It only reads. A few gradients are kept until their norms are computed together: one call for many costs less than one
call for each, and they are still in the cache.
"""

from __future__ import annotations

import torch

_BATCHED_ELEMENTS = 1 << 18  # elements


class SquaredNorms:
    """|g|² over the parameters of each logical rank of a step, divided by the weight of the rank in the step's mean."""

    def __init__(self) -> None:
        self.is_on = False  # whether the step that begins next is measured
        self.by_rank: dict[int, torch.Tensor] = {}
        self.parts = 0  # gradients that were measured
        self._waiting: list[torch.Tensor] = []
        self._elements = 0
        self._norms: list[torch.Tensor] = []

    def start_step(self) -> None:
        """A step begins."""
        self.by_rank, self.parts = {}, 0
        self._waiting, self._elements, self._norms = [], 0, []

    def add(self, gradient: torch.Tensor) -> None:
        """Measure a part of the gradient that is being computed."""
        if not self.is_on:
            return
        is_short = gradient.dtype not in (torch.float32, torch.float64)
        self._waiting.append(gradient.float() if is_short else gradient)
        self._elements += gradient.numel()
        if self._elements >= _BATCHED_ELEMENTS:
            self._compute_norms()

    def close_rank(self, logical_rank: int, weight: float) -> None:
        """The gradient of a logical rank is whole. It was scaled by `weight`, which the norm takes back."""
        self._compute_norms()
        if not self._norms:
            return
        norms = torch.stack(self._norms)
        square = torch.dot(norms, norms) / weight
        before = self.by_rank.get(logical_rank)
        self.by_rank[logical_rank] = square if before is None else before + square
        self.parts += 1
        self._norms = []

    def _compute_norms(self) -> None:
        if self._waiting:
            norms = torch._foreach_norm(self._waiting)
            self._norms += norms if norms[0].dtype == torch.float32 else [norm.float() for norm in norms]
            self._waiting, self._elements = [], 0


def squared_norm(flat: torch.Tensor) -> float:
    """|g|² of a whole gradient."""
    return float(torch.linalg.vector_norm(flat)) ** 2
