"""The tail of the gradient buffer: what members tell each other in a step without another round trip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from elasticdl.collective.squared_norms import SquaredNorms

LEFT_LOOP = -1
_RECORDS, _STOP, _PARTS, _CHANGE, _SCALE, _FACTOR, _MEASURED, _ORPHANED, _SLOTS = 0, 1, 2, 3, 4, 5, 6, 7, 8


@dataclass(frozen=True, slots=True)
class StepReport:
    """The sum of the reports of all members in one step."""

    records: int
    must_stop: bool
    losses: tuple[float, ...]  # of each logical rank, weighted by its share of the batch
    votes: tuple[int, ...]  # of each rank: the round it has prepared, 0 for none, LEFT_LOOP if its script left the loop
    squares: tuple[float, ...]  # of each logical rank: |g|², weighted as the losses are
    noise_parts: int  # gradients that were measured for it
    batch_change: int  # from the first member: the newest change of the batch that holds from the next update on …
    batch_scale: int  # … and its scale
    rate_factor: float  # from the first member: of the learning rate from the next update on
    digests: tuple[int, ...] = ()  # of each rank: its training state
    touched: tuple[bool, ...] = ()  # of each parameter: whether any member has a gradient of it
    measured_bytes: int = 0  # of all members: the measurements of their batches, encoded
    is_orphaned: bool = False  # a member stops because its master does not come back

    def agreed_round(self, size: int) -> int:
        """The round that all members voted for; 0 if they did not."""
        votes = set(self.votes[:size])
        return max(0, votes.pop()) if len(votes) == 1 else 0

    @property
    def leavers(self) -> list[int]:
        """The ranks whose scripts have left the training loop."""
        return [rank for rank, vote in enumerate(self.votes) if vote == LEFT_LOOP]


@dataclass(frozen=True, slots=True)
class OwnReport:
    """The numbers that one member sends the others in a step."""

    losses: Mapping[int, torch.Tensor]  # by logical rank
    records: int
    vote: int  # the round that it can enter, or LEFT_LOOP
    must_stop: bool
    squares: SquaredNorms | None = None
    batch_change: tuple[int, int] = (0, 1)  # a change of the batch and its scale; counts from the first member only
    rate_factor: float = 1.0  # counts from the first member only
    digest: int = 0
    touched: bytes = b""  # by parameter: whether it has a gradient; empty: no parameter has one
    measured_bytes: int = 0
    is_orphaned: bool = False


@dataclass(frozen=True, slots=True)
class StepReportLayout:
    """Where in the tail each number is: `_SLOTS` of all, then four for each logical rank, then one per parameter."""

    logical_ranks: int
    parameters: int = 0

    @property
    def length(self) -> int:
        return _SLOTS + 4 * self.logical_ranks + self.parameters

    def write(self, tail: torch.Tensor, rank: int, own: OwnReport) -> None:
        """Write the report of the member `rank` into the tail of its gradients, which are then summed."""
        numbers = [0.0] * (_SLOTS + 4 * self.logical_ranks)
        numbers[_RECORDS], numbers[_STOP], numbers[_MEASURED] = own.records, float(own.must_stop), own.measured_bytes
        numbers[_ORPHANED] = float(own.is_orphaned)
        if rank == 0:
            numbers[_CHANGE], numbers[_SCALE] = own.batch_change
            numbers[_FACTOR] = own.rate_factor
        numbers[_SLOTS + self.logical_ranks + rank] = own.vote
        numbers[_SLOTS + 3 * self.logical_ranks + rank] = own.digest
        squares = own.squares
        if squares is not None:
            numbers[_PARTS] = squares.parts
        tail[: len(numbers)].copy_(torch.tensor(numbers, dtype=tail.dtype))
        if self.parameters:
            flags = bytearray(own.touched or self.parameters)
            tail[len(numbers) :].copy_(torch.frombuffer(flags, dtype=torch.uint8))
        for logical_rank, loss in own.losses.items():
            tail[_SLOTS + logical_rank] = loss
        if squares is not None and squares.by_rank:
            indices = [_SLOTS + 2 * self.logical_ranks + logical_rank for logical_rank in squares.by_rank]
            tail[indices] = torch.stack(list(squares.by_rank.values())).to(tail.dtype)

    def read(self, tail: torch.Tensor) -> StepReport:
        numbers = tail.tolist()
        ranks = self.logical_ranks
        losses, votes, squares, digests = (numbers[_SLOTS + n * ranks : _SLOTS + (n + 1) * ranks] for n in range(4))
        return StepReport(
            round(numbers[_RECORDS]),
            numbers[_STOP] > 0,
            tuple(losses),
            tuple(round(vote) for vote in votes),
            tuple(squares),
            round(numbers[_PARTS]),
            round(numbers[_CHANGE]),
            round(numbers[_SCALE]),
            numbers[_FACTOR],
            tuple(round(digest) for digest in digests),
            tuple(count > 0 for count in numbers[_SLOTS + 4 * ranks :]),
            round(numbers[_MEASURED]),
            numbers[_ORPHANED] > 0,
        )
