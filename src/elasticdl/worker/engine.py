"""The engine of elastic training: steps of the plan, whatever the workers do.

`steps()` yields every step this worker takes part in. The caller computes the loss of each
batch it is given; the engine reduces, applies, and between two steps deals with all that may
have happened: a new round by vote, a lost member, a newcomer to feed, a checkpoint due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import torch

from elasticdl.collective.exchange import Exchange
from elasticdl.collective.squares import Squares
from elasticdl.collective.tree import Tree
from elasticdl.data.plan import Plan
from elasticdl.errors import RoundBroken
from elasticdl.testing.faults import Faults
from elasticdl.worker.batch import Update
from elasticdl.worker.donor import Donor
from elasticdl.worker.feed import Feed
from elasticdl.worker.link import Link
from elasticdl.worker.measuring import EVERY, Meter
from elasticdl.worker.newcomer import catch_up
from elasticdl.worker.pace import Pace
from elasticdl.worker.rounds import Rounds, Seat
from elasticdl.worker.settle import settle
from elasticdl.worker.step import Step
from elasticdl.worker.tables import NoTables
from elasticdl.worker.tail import Heard, Tail
from elasticdl.worker.training import Training

_log = logging.getLogger(__name__)


class Engine:
    """Owns the training thread's side of a worker."""

    def __init__(
        self,
        training: Training,
        feed: Feed,
        rounds: Rounds,
        link: Link,
        donor: Donor,
        tables: NoTables,
        first_state: Callable[[], None],
        after_step: Callable[[Seat], None],
        *,
        ordered: bool,
        faults: Faults,
        squares: Squares,
    ) -> None:
        self.training = training
        self.plan: Plan = feed.plan
        self._feed = feed
        self._rounds = rounds
        self._link = link
        self._donor = donor
        self._tables = tables
        self._first_state = first_state
        self._after_step = after_step
        self._tree = Tree(self.plan.logical_ranks)
        self._ordered = ordered
        self._faults = faults
        self._squares = squares
        self._meter = Meter(self.plan.logical_ranks, squares)
        self._exchange: Exchange | None = None
        self.pace = Pace()
        self.stopped = ""  # why training ended before the plan did
        self.has_left = False

    @property
    def is_done(self) -> bool:
        return bool(self.stopped) or self.training.step >= self.plan.total_steps

    def steps(self) -> Iterator[Step]:
        """Every step from here to the end of the plan. Ends early when stopped, or when this worker has left."""
        self._join()
        for callback in self.training.callbacks:
            callback.on_train_begin(self.training.model)
        while not self.is_done and not self.has_left:
            seat = self._rounds.seat
            assert seat is not None
            self.pace.begin()
            assert self._exchange is not None
            self._meter.begin(self.training.step, self.training.batch)
            self._exchange.start()
            passes = self.training.batch.passes(self.training.step, self.plan)
            step = Step(self.training.step, seat.share, self.training, self._feed, self._tables, passes)
            self._feed.expect(step.number, seat.share, passes)
            self._faults.strike(step.number, "begin")
            yield step
            step.check()
            self._faults.strike(step.number, "computed")
            self.pace.computed(seat.share.count, step.passes)
            try:
                self._finish(step, seat)
            except RoundBroken as exc:
                self._broken(seat.round, exc)
                self._join()
        self._tables.settle()

    # ---- one step

    def _finish(self, step: Step, seat: Seat) -> None:
        training, exchange = self.training, self._exchange
        assert exchange is not None
        tail = Tail(self.plan.logical_ranks)
        voted = self._vote(seat)
        tail.write(
            training.gradients.tail(training.gradients.sums()[0]),
            step.losses,
            step.records,
            seat.rank,
            voted,
            stop=bool(self._stop_reason()),
            squares=self._squares,
            batch=self._link.batch_at(step.number + step.passes, (training.batch.change, training.batch.scale)),
            rate_factor=training.wanted_factor,
        )
        self._tables.before_reduce(step.number)
        reduced = exchange.reduce()
        buffers = self._shared_buffers(step, seat)
        self._faults.strike(step.number, "reduced")
        heard = tail.read(training.gradients.tail(reduced))
        if self._tables.after_reduce(step.number, is_last=heard.stop):
            self._meet(seat)
        training.weigh(reduced, heard.losses, heard.records, step.planned)
        enter = heard.agreed(seat.group.size)
        self._donor.before_update(training.gradients.flat(reduced))
        update = self._update(step, reduced, heard)
        is_scaled = update.change != training.batch.change
        training.apply(reduced, update, buffers)
        self._donor.after_update(training, update, buffers, enter)
        self._faults.strike(step.number, "applied")
        if is_scaled:
            self._link.batch_scaled(update.change, training.step, update.batch_scale)
        self._completed(seat)
        if heard.stop:
            self.stopped = self._stop_reason() or "stopped"
        if enter and not self.stopped:
            self._enter(enter)
        elif self._link.is_overdue:
            self.has_left = True  # nobody took over within the grace

    def _update(self, step: Step, reduced: torch.Tensor, heard: Heard) -> Update:
        """What all members know of the update, the same in each of them."""
        batch = self.training.batch
        scale = step.planned / batch.global_batch
        flat, kept = self.training.gradients.flat(reduced), heard.records / step.planned
        estimate = self._meter.estimate(flat, heard.squares, heard.parts, scale, kept)
        change, factor = (heard.change, heard.batch_scale), heard.rate_factor
        return Update(heard.records, step.passes, scale, estimate, EVERY, *change, rate_factor=factor)

    def _meet(self, seat: Seat) -> None:
        """Until all members are here."""
        seat.group.allgather(torch.empty(seat.group.size, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))

    def _completed(self, seat: Seat) -> None:
        gap_s = self.pace.applied()
        if gap_s is not None:
            self._link.entered(seat.round, self.training.step, gap_s)
        self._link.progress(self)
        self.training.completed(self.plan)
        self._after_step(seat)

    @property
    def _is_dismissed(self) -> bool:
        """Outside of a round: whether there is none to wait for."""
        link = self._link
        return link.is_released or link.is_orphaned or (link.is_leaving and not self.training.holds_state)

    def _stop_reason(self) -> str:
        if self._link.is_orphaned:
            return "the master is away for good"
        return self._link.stop_reason or next((c.stop_reason for c in self.training.callbacks if c.stop_reason), "")

    def _shared_buffers(self, step: Step, seat: Seat) -> dict[str, torch.Tensor]:
        """The buffers of logical rank 0, which the first member computed."""
        buffers = step.buffers if seat.rank == 0 else self.training.buffers()
        if not buffers or seat.group.size == 1:
            return buffers
        parts = [buffer.contiguous().reshape(-1).view(torch.uint8) for buffer in buffers.values() if buffer.numel()]
        packed = torch.cat(parts).cpu()
        seat.group.broadcast(packed, 0)
        received, start = {}, 0
        for name, buffer in buffers.items():
            size = buffer.numel() * buffer.element_size()
            received[name] = packed[start : start + size].clone().view(buffer.dtype).view(buffer.shape)
            start += size
        return received

    # ---- rounds

    def _vote(self, seat: Seat) -> int:
        prepared = self._rounds.prepared()
        if not prepared:
            return 0
        message = self._rounds.planned()
        assert message is not None
        newcomers = self._rounds.newcomers_to(message)
        is_ready = self._donor.is_ready(newcomers, self.training.step, self.pace.step_s)
        return prepared if is_ready and message.id == prepared else 0

    def _enter(self, round_id: int) -> None:
        try:
            seat = self._rounds.enter(round_id)
        except RoundBroken as exc:
            self._broken(round_id, exc)
            self._join()
            return
        if seat is None:
            self.has_left = True
        else:
            self._seated(seat)

    def _seated(self, seat: Seat) -> None:
        self._exchange = Exchange(seat.group, self.training.gradients, self._tree, seat.shares, ordered=self._ordered)
        self.pace.entered()
        self._link.seated(seat.round)
        _log.info("round %d: rank %d of %d, logical ranks %d..%d", seat.round, seat.rank, seat.group.size,
                  seat.share.first, seat.share.stop - 1)  # fmt: skip

    def _broken(self, round_id: int, exc: RoundBroken) -> None:
        self._rounds.drop(round_id)
        self.training.gradients.abandon()
        self._tables.abandon()
        if self._link.is_expelled:
            return
        _log.info("round %d broke: %s", round_id, exc)
        self._link.broken(round_id, str(exc))

    def _join(self) -> None:
        """Into the next round, however often that breaks: a forced one, or by hand-over where there is no state."""
        while not self.has_left:
            self._rounds.resume()  # before looking why it was interrupted: a later one interrupts again
            if self._link.is_expelled:
                self.training.forget()
                self._link.begin_anew()
            elif self._is_dismissed:
                self.has_left = True
                return
            round_id = 0
            try:
                message = self._rounds.wait(
                    holds_state=self.training.holds_state, is_dismissed=lambda: self._is_dismissed
                )
                round_id = message.id
                if message.forced:
                    seat = self._rounds.enter(message.id)
                    assert seat is not None
                    settle(seat.group, self.training, self._first_state)
                else:
                    round_id = catch_up(message, self._rounds, self._link, self.training)
                    seat = self._rounds.enter(round_id)
                    assert seat is not None
            except RoundBroken as exc:
                if round_id:
                    self._broken(round_id, exc)
                continue
            self._seated(seat)
            return
