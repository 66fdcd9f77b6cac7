"""From the squared norms in a step's tail to an estimate of the gradient's noise.

Norms are taken of one update in eight only: reading every gradient once more would cost some percent of a step, and
the noise changes over thousands of them. Which updates those are follows from the state, so all members agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from elasticdl.collective.squares import Squares, square
from elasticdl.worker.batch import Batch
from elasticdl.worker.noise import Estimate, of_difference, of_parts

EVERY = 8  # updates


class Meter:
    """Of one worker. Keeps the gradient before only where an update has one part, and is measured next."""

    def __init__(self, logical_ranks: int, squares: Squares) -> None:
        self._logical_ranks = logical_ranks
        self._squares = squares
        self._is_wanted = False  # the update that runs is to be measured …
        self._is_next = False  # … or the one after it
        self._is_difference = False
        self._before: tuple[torch.Tensor, float] | None = None  # the gradient of the update before, and its scale

    def begin(self, step: int, batch: Batch) -> None:
        """An update begins."""
        self._is_difference = self._logical_ranks * batch.scale == 1
        is_new = not batch.noise.knows(is_difference=self._is_difference)
        number = step // batch.scale
        self._is_wanted = is_new or number % EVERY == 0
        self._is_next = is_new or (number + 1) % EVERY == 0
        self._squares.is_on = self._is_wanted and not self._is_difference

    def estimate(
        self, flat: torch.Tensor, squares: Sequence[float], parts: int, scale: float, kept: float
    ) -> Estimate | None:
        """Of the update with the gradient `flat`; None where it is not measured, or does not tell.

        `squares` by logical rank, weighted by planned records, of which filters have left the share `kept`.
        """
        if self._is_difference:
            return self._difference(flat, scale)
        self._before = None
        return of_parts(sum(squares) / kept, square(flat), parts, scale) if self._is_wanted and kept else None

    def _difference(self, flat: torch.Tensor, scale: float) -> Estimate | None:
        found = None
        if self._is_wanted and self._before is not None:
            before, its_scale = self._before
            if scale == its_scale:  # batches of different size tell nothing together
                product = float(torch.dot(before, flat))
                found = of_difference(square(before), square(flat), product, scale)
        self._before = (flat.clone(), scale) if self._is_next else None
        return found
