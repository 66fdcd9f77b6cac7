"""The loss curve as the master knows it: every point once, in the order of steps, and the mean of each epoch. Pure.

Several workers report the same points, and after a kill some come again. A report says up to which step it is whole,
so what lies at or below the greatest such step is known and left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from pydantic import ConfigDict

from elasticdl.master.machine.events import EpochLoss, LossesReported


class LossPoint(NamedTuple):
    """One point of the curve, as it is drawn."""

    step: int
    loss: float
    learning_rate: float | None  # None: of a job that trains by leases, whose workers are at different rates
    at: float


@dataclass(slots=True)
class WeightedMean:
    """The mean of losses, weighted by their records."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="constants")

    total: float = 0.0
    records: float = 0.0

    def add(self, total: float, records: float) -> None:
        self.total += total
        self.records += records

    @property
    def value(self) -> float:
        return self.total / self.records if self.records else 0.0


@dataclass(slots=True)
class LossCurve:
    """The loss curve so far. A loss that diverged may be infinite or NaN."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="constants")

    complete_until: int = 0  # every point up to this step is taken
    step: int = 0  # the newest one whose loss is known; 0: none
    loss: float = 0.0
    epoch: EpochLoss | None = (
        None  # the newest that ended; at the end of the job the last one, as far as it was trained
    )
    reported_at: float = 0.0  # when points were taken last
    # Of a job that trains by leases: the batches since the newest point, and since the newest epoch ended.
    window_mean: WeightedMean = field(default_factory=WeightedMean)
    epoch_mean: WeightedMean = field(default_factory=WeightedMean)
    ended_epochs: int = 0  # epochs

    def add_report(
        self, report: LossesReported, began_at: float, now: float
    ) -> tuple[list[LossPoint], list[EpochLoss]]:
        """What of a report is new; its first points are of updates since `began_at`."""
        fresh = [point for point in report.points if point[0] > self.complete_until]
        epochs = [epoch for epoch in report.epochs if epoch.step > self.complete_until]
        self.complete_until = max(self.complete_until, report.complete_until)
        # Nobody says when the steps were: they are laid evenly between this report and the one before.
        since = self.reported_at or began_at
        spread_s = (now - since) / max(len(fresh), 1)
        points = [LossPoint(step, loss, rate, since + place * spread_s)
                  for place, (step, loss, rate, _) in enumerate(fresh, start=1)]  # fmt: skip
        if points:
            self.reported_at = now
            self.set_newest(points[-1].step, points[-1].loss)
        if epochs:
            self.epoch = epochs[-1]
        return points, epochs

    def set_newest(self, step: int, loss: float) -> None:
        """The exact loss of a step."""
        if step >= self.step:
            self.step, self.loss = step, loss

    def add_last_step(self, step: int, loss: float | None, epoch: EpochLoss | None) -> None:
        """A worker is done: its last step, and the epoch it belongs to."""
        if loss is not None:
            self.set_newest(step, loss)
        if epoch is not None and (self.epoch is None or epoch.step >= self.epoch.step):
            self.epoch = epoch

    # ---- training by leases: batches are reported when they are in the rows, by whoever trained them

    def add_batches(self, total: float, records: float) -> None:
        """Batches that are done: the sum of their losses, weighted by their records, and the records."""
        self.window_mean.add(total, records)
        self.epoch_mean.add(total, records)

    def close_window(self, step: int, now: float) -> LossPoint | None:
        """A point for the batches since the newest one; None where there were none."""
        if not self.window_mean.records:
            return None
        self.step, self.loss = step, self.window_mean.value
        self.window_mean, self.reported_at = WeightedMean(), now
        return LossPoint(step, self.loss, None, now)

    def close_epoch(self, epoch: int, step: int) -> EpochLoss:
        """The mean of the batches since the newest epoch ended."""
        self.epoch = EpochLoss(epoch, step, self.epoch_mean.value, round(self.epoch_mean.records))
        self.epoch_mean, self.ended_epochs = WeightedMean(), epoch
        return self.epoch
