"""A job of a measured application: it trains epochs, measures itself, fits its model and chooses its batch.

As in Pollux's simulator, by which it is checked: progress is gain / step time; an epoch ends at the least progress any
batch size needed for it; the batch is chosen anew at every epoch and every decision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from elasticdl.scheduler.interface import Batch, Floats, Rates
from elasticdl.scheduler.models.goodput import FixedBatch, Goodput, gain, split
from elasticdl.scheduler.models.throughput import Throughput, fit
from elasticdl.scheduler.snapshot import Noise, SpeedSample
from elasticdl.sim.application import Application, spread
from elasticdl.sim.interface import Knowledge, Placement


class Profiled:
    """See the module. `batch`: its owner's, for good; None: it adapts."""

    def __init__(self, application: Application, batch: int | None, *, is_oracle: bool = False) -> None:
        self.application = application
        self.name = application.name
        self._batch = batch
        self._is_oracle = is_oracle
        self._placement: Placement = ()
        self._local, self._passes = 0, 1
        self._epoch, self._progress = 0, 0.0
        self._samples: dict[tuple[int, int, int], SpeedSample] = {}
        self._fitted: Throughput | None = None
        self._noise: Noise | None = None
        self._rate = 0.0
        self._known: Knowledge | None = None

    @property
    def is_done(self) -> bool:
        return self._epoch >= self.application.epochs

    def place(self, placement: Placement, kind: str, batch: Batch | None) -> None:
        self._placement = tuple(count for count in placement if count)
        self._choose()

    def rate(self) -> float:
        return self._rate

    def to_mark(self) -> float:
        return float(self.application.progress[self._epoch]) - self._progress

    def advance(self, work: float) -> bool:
        if not self._placement:
            return False
        before = self._rate
        self._measure()
        if work >= self.to_mark() - 1e-9:
            self._progress = float(self.application.progress[self._epoch])
            self._epoch += 1
        else:
            self._progress += work
        self._known = None
        if not self.is_done:
            self._choose()
        return self._rate != before

    def known(self) -> Knowledge:
        if self._known is None:
            left = float(self.application.progress[-1]) - self._progress
            rates = self._rates()
            if isinstance(rates, Oracle):
                left = rates.steps_left()
            self._known = Knowledge(tuple(self._samples.values()), self._noise, (), rates, left, self._progress)
        return self._known

    def alone_s(self, workers: float) -> float:
        return self.application.alone_s(self._batch, workers)

    def _rates(self) -> Rates | None:
        limits = self.application.limits
        if self._is_oracle and self._batch is not None:
            return Oracle(self.application, self._batch, self._epoch)
        if not self._samples or self._noise is None:
            return None
        self._fitted = self._fitted or fit(list(self._samples.values()))
        if self._batch is not None:
            return FixedBatch(self._fitted, self._noise, limits, self._batch)
        return Goodput(self._fitted, self._noise, limits)

    def _choose(self) -> None:
        """The batch for what it has, and so its rate."""
        if not self._placement or self.is_done:
            self._rate = 0.0
            return
        limits, workers = self.application.limits, sum(self._placement)
        rates = self._rates() if self._batch is None else None
        if rates is not None and (best := rates.batch(workers, len(self._placement))) is not None:
            self._local, self._passes = best.local, best.passes
        else:
            total = self._batch or max(limits.initial, limits.local_minimum * workers)
            local, passes = split(total, workers, limits)
            self._local, self._passes = int(local), int(passes)
        step, sync = self.application.step_s(self._placement, self._local)
        scale = self._local * self._passes * workers / limits.initial
        noise = self.application.noise(self._local * self._passes * workers, self._epoch)
        self._rate = float(gain(noise, scale)) / (step + (step - sync) * (self._passes - 1))

    def _measure(self) -> None:
        nodes, workers = len(self._placement), sum(self._placement)
        self._noise = self.application.noise(self._local * self._passes * workers, self._epoch)
        at = (nodes, workers, self._local)
        if at not in self._samples:
            step, sync = self.application.step_s(self._placement, self._local)
            self._samples[at] = SpeedSample(*at, step, step - sync)
            self._fitted = None


@dataclass(frozen=True)
class Oracle:
    """The truth about a job with a fixed batch: Optimus+Oracle of Pollux's evaluation."""

    application: Application
    total: int
    epoch: int

    def at(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        counts = np.asarray(workers)
        found = [self._rate(int(count)) for count in counts.ravel()]
        return np.array(found).reshape(counts.shape)

    def batch(self, workers: int, nodes: int, kind: str = "") -> Batch | None:
        local, passes = split(self.total, workers, self.application.limits)
        return Batch(int(local), int(passes))

    def steps_left(self) -> float:
        """Until its end, as they were recorded for this batch."""
        app = self.application
        last = app.epochs - 1
        return app.iterations(self.total, last) - app.iterations(self.total, self.epoch) if self.epoch < last else 1.0

    def step_s(self, workers: int) -> float:
        local, passes = (int(one) for one in split(self.total, workers, self.application.limits))
        if workers == 1 and passes < 2:  # as the authors predict it
            local, passes = math.ceil(self.total / 2), 2
        step, sync = self.application.step_s(spread(workers), local)
        return step + (step - sync) * (passes - 1)

    def _rate(self, workers: int) -> float:
        return 1.0 / self.step_s(workers) if workers else 0.0
