"""The loss curve: every point once, in the order of steps, and the mean of each epoch. Pure.

Several workers report the same points, and after a kill some points are reported again. A report says up to which step
it is complete, so points up to the greatest such step are known and skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from pydantic import ConfigDict

from elasticdl.master.machine.events import EpochLoss, LossesReported


class LossPoint(NamedTuple):
    """One point of the curve."""

    step: int
    loss: float
    learning_rate: float | None  # None in lease training, whose workers have different rates
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

    complete_until: int = 0  # every point up to this step is recorded
    step: int = 0  # the newest step whose loss is known; 0: none
    loss: float = 0.0
    # The newest epoch that ended; after the job, the last one, as far as it was trained.
    epoch: EpochLoss | None = None
    reported_at: float = 0.0  # when points were recorded last
    # Of lease training: the batches since the newest point, and since the newest epoch ended.
    window_mean: WeightedMean = field(default_factory=WeightedMean)
    epoch_mean: WeightedMean = field(default_factory=WeightedMean)
    ended_epochs: int = 0

    def add_report(
        self, report: LossesReported, began_at: float, now: float
    ) -> tuple[list[LossPoint], list[EpochLoss]]:
        """Record a report; returns its new points and epochs. `began_at`: when the updates of a first report began."""
        new_points = [point for point in report.points if point[0] > self.complete_until]
        epochs = [epoch for epoch in report.epochs if epoch.step > self.complete_until]
        self.complete_until = max(self.complete_until, report.complete_until)
        # The times of steps are not reported: spread them evenly between the report before and this one.
        since = self.reported_at or began_at
        interval_s = (now - since) / max(len(new_points), 1)
        points = [LossPoint(step, loss, rate, since + number * interval_s)
                  for number, (step, loss, rate, _) in enumerate(new_points, start=1)]  # fmt: skip
        if points:
            self.reported_at = now
            self.set_newest(points[-1].step, points[-1].loss)
        if epochs:
            self.epoch = epochs[-1]
        return points, epochs

    def set_newest(self, step: int, loss: float) -> None:
        """Set the newest known loss, unless a later one is known."""
        if step >= self.step:
            self.step, self.loss = step, loss

    def add_last_step(self, step: int, loss: float | None, epoch: EpochLoss | None) -> None:
        """Record the last step of a worker that finished, and the epoch of that step."""
        if loss is not None:
            self.set_newest(step, loss)
        if epoch is not None and (self.epoch is None or epoch.step >= self.epoch.step):
            self.epoch = epoch

    # ---- lease training: a worker reports batches once they are pushed to the ps

    def add_batches(self, total: float, records: float) -> None:
        """Add batches: `total` is the sum of their losses, each times its records."""
        self.window_mean.add(total, records)
        self.epoch_mean.add(total, records)

    def close_window(self, step: int, now: float) -> LossPoint | None:
        """Add a point for the batches since the newest point; None if there are none."""
        if not self.window_mean.records:
            return None
        self.step, self.loss = step, self.window_mean.value
        self.window_mean, self.reported_at = WeightedMean(), now
        return LossPoint(step, self.loss, None, now)

    def close_epoch(self, epoch: int, step: int) -> EpochLoss:
        """Record the end of an epoch: the mean of the batches since the epoch before."""
        self.epoch = EpochLoss(epoch, step, self.epoch_mean.value, round(self.epoch_mean.records))
        self.epoch_mean, self.ended_epochs = WeightedMean(), epoch
        return self.epoch
