"""One step of the training loop, as one worker computes it: its batches, then whole gradients.

    for step in job:
        for features, labels in step:      # this worker's share
            step.backward(loss(model(features), labels))
        # here gradients are whole, in all workers the same

A step that takes several updates (a GAN) is iterated once for each; the batches are the same each time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch

from elasticdl.collective.group import Group
from elasticdl.collective.tree import RankRange
from elasticdl.data.dataset import Batch
from elasticdl.errors import ElasticDLError
from elasticdl.worker.embeddings.tables import EmbeddingTables
from elasticdl.worker.reading.feed import Feed
from elasticdl.worker.training.numerics import seed_everything
from elasticdl.worker.training.state import TrainingState

_AFTER_BATCHES_KEY = -1  # in the place of a logical rank
_KEPT_BATCH_KEY = 2  # behind it, for batches that are kept for another loop


class UpdateStrategy(Protocol):
    """Makes updates of what a step computes: with other workers, or alone."""

    def begin_update(self, step: Step) -> None:
        """The batches of an update are about to be computed: call `Step.start`."""

    def reduce(self, step: Step) -> bool:
        """All batches are computed: make the gradients whole. False: compute the batches of another share."""


class Step:
    """Iterate over its batches and call `backward` for each."""

    def __init__(
        self,
        number: int,
        training: TrainingState,
        feed: Feed,
        tables: EmbeddingTables,
        updates: UpdateStrategy,
        passes: int = 1,
    ) -> None:
        """`passes`: steps of the plan that make the update, of which `number` is the first."""
        self.number = number
        self.passes = passes
        self._training = training
        self._feed = feed
        self._tables = tables
        self._updates = updates
        self._planned = sum(feed.plan.batch_size(number + offset) for offset in range(passes))
        self._loss: float | None = None
        self.averages: dict[str, float] = {}  # of the measurements, over the whole global batch
        self.is_void = False  # other workers have applied the update already, or no worker will
        self.is_started = False  # batches are being computed
        self.is_reduced = False  # gradients are whole
        self.updates = 0  # that are closed
        self.trained: set[int] = set()  # ids of parameters that required a gradient in one of its updates
        self._batches: dict[tuple[int, int], Batch | None] = {}  # by step and rank, if the script may loop again
        self.start(RankRange(0, 0))
        self.is_started = False

    @property
    def epoch(self) -> int:
        return self._feed.plan.epoch_of(self.number)

    @property
    def is_last_of_epoch(self) -> bool:
        return (self.number + self.passes) % self._feed.plan.steps_per_epoch == 0

    @property
    def planned_records(self) -> int:
        """The records of the whole update in the plan."""
        return self._planned

    @property
    def loss(self) -> float:
        """The loss over the whole global batch, the same in all workers. Known after the batches of the step."""
        if self._loss is None:
            raise ElasticDLError(f"step {self.number}: its loss is known after `for batch in step`")
        return self._loss

    def __iter__(self) -> Iterator[Any]:
        self._updates.begin_update(self)
        self.averages = {}
        is_whole = False
        while not is_whole:
            yield from self._iterate_batches()
            is_whole = self._updates.reduce(self)
        self._loss = self._training.loss
        # Random numbers that the script draws from here on are the same in all workers, whatever they computed.
        seed_everything(self._feed.plan.seed, self.number, _AFTER_BATCHES_KEY, self.updates)

    def start(self, share: RankRange) -> None:
        """Starts over: the batches of `share` are computed next."""
        self._share = share
        self._open: tuple[int, int, Batch, int] | None = None  # rank, pass, batch and its records without a loss yet
        self.losses: dict[int, torch.Tensor] = {}
        self.measurements = Measurements()
        self.records = 0
        self.buffers: dict[str, torch.Tensor] = {}
        self._next = (share.first, 0)  # rank and pass
        self._prefetch(share)
        self.is_started, self.is_reduced = True, False

    @property
    def share(self) -> RankRange:
        return self._share

    def skip_rest(self) -> None:
        """The script has left the loop: count what it has not computed as zeros, so that the tree keeps its shape."""
        if self._open is not None:
            (rank, current_pass, batch, left), self._open = self._open, None
            is_first = current_pass == 0 and left == batch.size
            self._training.gradients.skip(rank, is_first=is_first, is_last=current_pass == self.passes - 1)
            self._next = (rank, current_pass + 1)
        rank, next_pass = self._next
        while rank < self._share.stop:
            for skipped in range(next_pass, self.passes):
                self._training.gradients.skip(rank, is_first=skipped == 0, is_last=skipped == self.passes - 1)
            rank, next_pass = rank + 1, 0

    def _iterate_batches(self) -> Iterator[Any]:
        before = self._training.buffers.capture()
        try:
            yield from self._iterate_ranks(before)
        finally:  # also where the script leaves the loop
            if before:
                self._training.buffers.restore(before)

    def _iterate_ranks(self, before: dict[str, torch.Tensor]) -> Iterator[Any]:
        for rank in range(self._share.first, self._share.stop):
            if before and rank != self._share.first:
                self._training.buffers.restore(before)
            # All passes of a rank, then those of the next: so one buffer is enough for their sum.
            for current_pass in range(self.passes):
                self._next = (rank, current_pass)
                batch = self._begin_batch(self.number + current_pass, rank)
                self._next = (rank, current_pass + 1)
                if batch is None:
                    is_last = current_pass == self.passes - 1
                    self._training.gradients.skip(rank, is_first=current_pass == 0, is_last=is_last)
                    continue
                self._open = (rank, current_pass, batch, batch.size)
                yield batch.value
                if self._open is not None:
                    left = self._open[3]
                    raise ElasticDLError(
                        f"step {self.number}: call step.backward(loss) for every batch; "
                        f"{left} of its {batch.size} records have no loss yet"
                    )
            if rank == 0:
                self.buffers = self._training.buffers.capture()

    def _prefetch(self, share: RankRange) -> None:
        """Let the batches of `share` be read, unless an earlier loop over this step has read them."""
        steps = range(self.number, self.number + self.passes)
        ranks = range(share.first, share.stop)
        if any((number, rank) not in self._batches for number in steps for rank in ranks):
            self._feed.prefetch(self.number, share, self.passes)

    def _read_batch(self, number: int, rank: int) -> Batch | None:
        if len(self._training.optimizers) == 1:
            return self._feed.read_batch(number, rank)
        if (number, rank) not in self._batches:
            self._batches[number, rank] = self._feed.read_batch(number, rank)
        seed_everything(self._feed.plan.seed, number, rank, _KEPT_BATCH_KEY)  # as if reading had drawn nothing
        return self._batches[number, rank]

    def _begin_batch(self, number: int, rank: int) -> Batch | None:
        batch = self._read_batch(number, rank)
        if batch is not None:
            self._tables.begin_batch(batch.features)
        if self._tables.looks_ahead:
            # The next batch is made before this one is computed, so that its rows are pulled meanwhile.
            assert self.passes == 1, "rows are pushed batch by batch"
            following = (number, rank + 1) if rank + 1 < self._share.stop else (number + 1, self._share.first)
            if following[0] < self._feed.plan.total_steps:
                early = self._feed.read_early(*following)
                if early is not None:
                    self._tables.look_ahead(early.features)
            # The random numbers of this batch do not depend on whether the next one was made early.
            seed_everything(self._feed.plan.seed, number, rank, 1)
        return batch

    def backward(
        self, loss: torch.Tensor, *, records: int | None = None, scaler: torch.amp.GradScaler | None = None
    ) -> None:
        """Take the mean loss of the current batch.

        To go through a batch in micro-batches, call it for each, with the number of its `records`. With fp16, `scaler`
        scales the loss for the backward pass; after the batches call `scaler.step(optimizer)` and `scaler.update()`.
        """
        if self._open is None:
            raise ElasticDLError(
                f"step {self.number}: backward was called outside of `for batch in step`, or for more records than the "
                "batch has; for micro-batches say how many with step.backward(loss, records=n)"
            )
        if scaler is not None and not scaler.is_enabled():
            scaler = None
        rank, current_pass, batch, left = self._open
        count = left if records is None else records
        self._check_backward(count, batch, left, scaler)
        is_first = current_pass == 0 and left == batch.size
        left -= count
        self._open = (rank, current_pass, batch, left) if left else None
        weight = count / self._planned
        scaled = loss if scaler is None else scaler.scale(loss)
        is_last = current_pass == self.passes - 1 and not left
        self._training.gradients.backward(scaled, rank, weight, is_first=is_first, is_last=is_last)
        self._tables.push_gradients(rank, self.number, self._training.next_rate, loss)
        earlier = self.losses.get(rank)
        self.losses[rank] = loss.detach() * weight if earlier is None else earlier + loss.detach() * weight
        self.records += count

    def measure(self, name: str, value: float | torch.Tensor) -> None:
        """Record a number of the current batch before its `backward`, for example an accuracy.

        After the batches of the step `averages[name]` is its mean over all records of the global batch, the same in
        all workers, and with any number of them.
        """
        if self._open is None:
            raise ElasticDLError(
                f"step {self.number}: measure({name!r}, …) was called outside of `for batch in step`, or after the "
                "batch's backward; call it before step.backward(loss)"
            )
        rank, _, batch, _ = self._open
        self.measurements.add(rank, name, batch.size, value)

    @property
    def has_batch(self) -> bool:
        """Whether there is a current batch, whose records have no loss yet."""
        return self._open is not None

    def install_gradients(self) -> None:
        """After the batches: put the whole gradients into `.grad` again if a framework has cleared them."""
        self._training.install_gradients()

    def _check_backward(self, count: int, batch: Batch, left: int, scaler: torch.amp.GradScaler | None) -> None:
        if not 0 < count <= left:
            raise ElasticDLError(
                f"step {self.number}: step.backward(loss, records={count}), but {left} of the {batch.size} records of "
                "the batch have no loss yet"
            )
        if count < batch.size and self._tables.has_rows:
            raise ElasticDLError(
                f"step {self.number}: a model with tables on ps pushes rows once for a batch; no micro-batches then"
            )
        registered = self._training.user_state.scalers
        if (scaler is not None or registered) and not any(scaler is own for own in registered):
            raise ElasticDLError(
                f"step {self.number}: with a GradScaler write join(…, state={{'scaler': scaler}}) and "
                "step.backward(loss, scaler=scaler), so that all workers scale alike and the loss is reported unscaled"
            )


class Measurements:
    """The measurements of the batches of one step: logical rank, name, records and value."""

    def __init__(self, entries: Iterable[tuple[int, str, int, float | torch.Tensor]] = ()) -> None:
        self._entries = list(entries)

    def add(self, rank: int, name: str, records: int, value: float | torch.Tensor) -> None:
        self._entries.append((rank, name, records, value.detach() if isinstance(value, torch.Tensor) else value))

    def encode(self) -> bytes:
        """The measurements as JSON; empty if there are none."""
        if not self._entries:
            return b""
        entries = [[rank, name, records, float(value)] for rank, name, records, value in self._entries]
        return json.dumps(entries, separators=(",", ":")).encode()

    @staticmethod
    def decode(parts: Iterable[bytes]) -> Measurements:
        return Measurements(tuple(entry) for part in parts if part for entry in json.loads(part))

    def averages(self) -> dict[str, float]:
        """The mean of each name, weighted by records."""
        sums: dict[str, float] = {}
        weights: dict[str, int] = {}
        for _, name, records, value in sorted(self._entries, key=lambda entry: entry[0]):
            sums[name] = sums.get(name, 0.0) + float(value) * records
            weights[name] = weights.get(name, 0) + records
        return {name: total / weights[name] for name, total in sums.items()}


def gather_measurements(own: bytes, total_bytes: int, group: Group) -> Measurements:
    """Gather the measurements of all members, who all know from the tail of the step how many bytes there are."""
    if group.size == 1 or not total_bytes:
        return Measurements.decode([own])
    part = torch.zeros(total_bytes, dtype=torch.uint8)
    part[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8) if own else part[:0]
    everyone = torch.empty(group.size * total_bytes, dtype=torch.uint8)
    group.allgather(everyone, part)
    return Measurements.decode(bytes(row.tolist()).rstrip(b"\0") for row in everyone.view(group.size, total_bytes))
