"""The tail of the gradient buffer: what all members learn in a step without another round trip.

Sums of zeros and one value each are exact in any order, so every slot arrives as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from elasticdl.collective.squares import Squares

_RECORDS, _STOP, _PARTS, _CHANGE, _SCALE, _FACTOR, _SLOTS = 0, 1, 2, 3, 4, 5, 6


@dataclass(frozen=True, slots=True)
class Heard:
    """What the members said in this step."""

    records: int
    stop: bool
    losses: tuple[float, ...]  # of each logical rank, weighted by its share of the batch
    votes: tuple[int, ...]  # of each rank: the round it has prepared, 0 for none
    squares: tuple[float, ...]  # of each logical rank: |g|², weighted as the losses are
    parts: int  # gradients that were measured for it
    change: int  # the first member's word: the newest change of the batch that holds from the next update on …
    batch_scale: int  # … and its scale
    rate_factor: float  # the first member's word, too: of the learning rate from the next update on

    def agreed(self, size: int) -> int:
        """The round all members voted for, 0 where they did not."""
        votes = set(self.votes[:size])
        return votes.pop() if len(votes) == 1 else 0


@dataclass(frozen=True, slots=True)
class Tail:
    logical_ranks: int

    @property
    def length(self) -> int:
        return _SLOTS + 3 * self.logical_ranks

    def write(
        self,
        tail: torch.Tensor,
        losses: Mapping[int, torch.Tensor],
        records: int,
        rank: int,
        vote: int,
        *,
        stop: bool,
        squares: Squares | None = None,
        batch: tuple[int, int] = (0, 1),
        rate_factor: float = 1.0,
    ) -> None:
        """`batch`: a change of the batch and its scale. This and `rate_factor` count where the first rank says it."""
        numbers = torch.zeros(self.length, dtype=tail.dtype)
        numbers[_RECORDS], numbers[_STOP] = records, float(stop)
        if rank == 0:
            numbers[_CHANGE], numbers[_SCALE] = batch
            numbers[_FACTOR] = rate_factor
        numbers[_SLOTS + self.logical_ranks + rank] = vote
        if squares is not None:
            numbers[_PARTS] = squares.parts
        tail.copy_(numbers)
        for logical_rank, loss in losses.items():
            tail[_SLOTS + logical_rank] = loss
        if squares is not None and squares.by_rank:
            places = [_SLOTS + 2 * self.logical_ranks + logical_rank for logical_rank in squares.by_rank]
            tail[places] = torch.stack(list(squares.by_rank.values())).to(tail.dtype)

    def read(self, tail: torch.Tensor) -> Heard:
        numbers = tail.tolist()
        ranks = self.logical_ranks
        losses, votes, squares = (numbers[_SLOTS + n * ranks : _SLOTS + (n + 1) * ranks] for n in range(3))
        return Heard(
            round(numbers[_RECORDS]),
            numbers[_STOP] > 0,
            tuple(losses),
            tuple(round(vote) for vote in votes),
            tuple(squares),
            round(numbers[_PARTS]),
            round(numbers[_CHANGE]),
            round(numbers[_SCALE]),
            numbers[_FACTOR],
        )
