"""The tail of the gradient buffer: what all members learn in a step without another round trip.

Sums of zeros and one value each are exact in any order, so every slot arrives as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

_RECORDS, _STOP, _SLOTS = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Heard:
    """What the members said in this step."""

    records: int
    stop: bool
    losses: tuple[float, ...]  # of each logical rank, weighted by its share of the batch
    votes: tuple[int, ...]  # of each rank: the round it has prepared, 0 for none

    def agreed(self, size: int) -> int:
        """The round all members voted for, 0 where they did not."""
        votes = set(self.votes[:size])
        return votes.pop() if len(votes) == 1 else 0


@dataclass(frozen=True, slots=True)
class Tail:
    logical_ranks: int

    @property
    def length(self) -> int:
        return _SLOTS + 2 * self.logical_ranks

    def write(
        self,
        tail: torch.Tensor,
        losses: Mapping[int, torch.Tensor],
        records: int,
        rank: int,
        vote: int,
        *,
        stop: bool,
    ) -> None:
        numbers = torch.zeros(self.length, dtype=tail.dtype)
        numbers[_RECORDS], numbers[_STOP] = records, float(stop)
        numbers[_SLOTS + self.logical_ranks + rank] = vote
        tail.copy_(numbers)
        for logical_rank, loss in losses.items():
            tail[_SLOTS + logical_rank] = loss

    def read(self, tail: torch.Tensor) -> Heard:
        numbers = tail.tolist()
        losses = numbers[_SLOTS : _SLOTS + self.logical_ranks]
        votes = numbers[_SLOTS + self.logical_ranks :]
        return Heard(round(numbers[_RECORDS]), numbers[_STOP] > 0, tuple(losses), tuple(round(v) for v in votes))
