"""The loss curve in a worker: points that the master does not have yet, and the mean of the running epoch."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from elasticdl.rpc import elasticdl_pb2 as pb

# A message has at most some hundred kilobytes.
MAX_POINTS_PER_MESSAGE = 4096
# Points kept while the master is away; if there are more, the oldest are dropped.
MAX_POINTS = 100_000


class UpdateLoss(NamedTuple):
    """One applied update."""

    step: int  # applied steps, those of the update included
    loss: float
    learning_rate: float
    records: int  # trained so far


class EpochMeanLoss(NamedTuple):
    """The record-weighted mean of the losses of an epoch so far."""

    epoch: int  # 1, 2, 3 …
    step: int
    loss: float
    records: int

    def to_message(self) -> pb.EpochLoss:
        return pb.EpochLoss(epoch=self.epoch, step=self.step, loss=self.loss, records=self.records)


class LossHistory:
    """The training thread calls `add`, the session's thread `take_unsent` and `forget_until`."""

    def __init__(self, steps_per_epoch: int = 1, every: int = 1, max_points: int = MAX_POINTS) -> None:
        """`every`: steps from one point to the next. An update that takes several steps makes one point at most."""
        self._steps_per_epoch = steps_per_epoch
        self._every = every
        self._lock = threading.Lock()
        self._points: deque[UpdateLoss] = deque(maxlen=max_points)
        self._epochs: deque[EpochMeanLoss] = deque(maxlen=max_points)
        self._known = 0  # the master has every point up to this step
        self._sent = 0  # this worker has sent every point up to this step
        self._sum = 0.0  # of loss x records, in the running epoch
        self._records = 0  # of the running epoch
        self.newest: UpdateLoss | None = None  # the update that was applied last, whether or not it is a point

    @property
    def epoch(self) -> EpochMeanLoss | None:
        """The mean of the epoch that the newest update belongs to."""
        newest = self.newest
        if newest is None:
            return None
        number = -(-newest.step // self._steps_per_epoch)
        return EpochMeanLoss(number, newest.step, self._sum / max(self._records, 1), self._records)

    def reset(self) -> None:
        """Starts over: no step is done."""
        self.load_state({}, {})

    def add(self, began: int, point: UpdateLoss, records: int) -> None:
        """Add an update that took the steps `began` … `point.step` - 1 and trained `records` records."""
        with self._lock:
            if began % self._steps_per_epoch == 0:  # an update never crosses the end of an epoch
                self._sum, self._records = 0.0, 0
            self._sum += point.loss * records
            self._records += records
            self.newest = point
            if point.step // self._every > began // self._every:
                self._points.append(point)
            if point.step % self._steps_per_epoch == 0 and self.epoch is not None:
                self._epochs.append(self.epoch)

    def take_unsent(self) -> pb.LossReport | None:
        """A message with the oldest points that are neither sent nor known to the master; they count as sent."""
        with self._lock:
            if self.newest is None:
                return None
            after = max(self._sent, self._known)
            points = [point for point in self._points if point.step > after]
            until = (
                points[MAX_POINTS_PER_MESSAGE - 1].step if len(points) > MAX_POINTS_PER_MESSAGE else self.newest.step
            )
            epochs = [epoch for epoch in self._epochs if after < epoch.step <= until]
            if not points and not epochs:
                return None
            self._sent = until
        sent = points[:MAX_POINTS_PER_MESSAGE]
        return pb.LossReport(
            until=until,
            step=[point.step for point in sent],
            loss=[point.loss for point in sent],
            learning_rate=[point.learning_rate for point in sent],
            records=[point.records for point in sent],
            epochs=[epoch.to_message() for epoch in epochs],
        )

    def forget_until(self, step: int) -> None:
        """The master has every point up to `step`."""
        with self._lock:
            self._known = max(self._known, step)
            self._trim()

    def epoch_sums(self) -> dict[str, Any]:
        """The part that belongs to the training state: it is the same in every worker."""
        return {"sum": self._sum, "records": self._records}

    def unreported_points(self) -> dict[str, Any]:
        """The points that the master may not have, for a worker that takes over the state."""
        with self._lock:
            return {"newest": self.newest, "points": list(self._points), "epochs": list(self._epochs)}

    def load_state(self, sums: Mapping[str, Any], unreported: Mapping[str, Any]) -> None:
        """Go on from another worker's state, or from a checkpoint, which has nothing unreported."""
        with self._lock:
            self._sum, self._records = float(sums.get("sum", 0.0)), int(sums.get("records", 0))
            newest = unreported.get("newest")
            self.newest = UpdateLoss(*newest) if newest else None
            self._points.clear()
            self._points.extend(UpdateLoss(*point) for point in unreported.get("points", ()))
            self._epochs.clear()
            self._epochs.extend(EpochMeanLoss(*epoch) for epoch in unreported.get("epochs", ()))
            self._trim()

    def _trim(self) -> None:
        for queue in (self._points, self._epochs):
            while queue and queue[0].step <= self._known:
                queue.popleft()
