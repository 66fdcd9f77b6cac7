"""How many global batches make an update, and what that does to the learning rate. Part of the training state.

Steps are counted in global batches, so the plan of records knows nothing of this: an update of k of them takes the
steps s … s + k - 1. It never crosses the end of an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from elasticdl.data.plan import Plan
from elasticdl.spec import BatchRule
from elasticdl.worker.noise import Estimate, Noise


@dataclass(frozen=True, slots=True)
class Update:
    """What all members know of an update, besides its gradient: with that, whoever applies it has the same state."""

    records: int  # that it trains
    passes: int = 1  # steps of the plan that it takes
    scale: float = 1.0  # records the plan has for it, over a global batch
    estimate: Estimate | None = None
    stands_for: int = 1  # updates that the estimate stands for
    change: int = 0  # the newest change of the batch that holds from here on …
    batch_scale: int = 1  # … and its scale
    rate_factor: float = 1.0  # what callbacks multiply the learning rate with, from here on
    loss: float = 0.0  # the mean over its records

    def header(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> Update:
        found = header["estimate"]
        return cls(**{**header, "estimate": Estimate(*found) if found else None})


class Change(NamedTuple):
    """Of the batch, as the master numbers them. Step -1: from the next update on."""

    id: int
    step: int
    scale: int


def newest(changes: Iterable[Change], step: int, known: tuple[int, int]) -> tuple[int, int]:
    """The change with the greatest id whose step has come, and its scale; `known` where it is not newer."""
    return max(
        [known, *((change.id, change.scale) for change in changes if known[0] < change.id and change.step <= step)]
    )


class Batch:
    """The batch of a job as it stands."""

    def __init__(
        self, rule: BatchRule, global_batch: int, schedule: Mapping[int, int] | None = None, run: str = ""
    ) -> None:
        """`run`: changes are numbered within it; those of an earlier run, in a checkpoint, are no longer known."""
        self.global_batch = global_batch
        self.scale = 1
        self.change = 0
        self.noise = Noise()
        self.progress = 0.0  # steps of one global batch that would have come as far
        self.rate_scale = 1.0  # of the learning rate, in the newest update
        self._rule = rule
        self._first = (schedule or {}).get(0)
        self._run = run

    def begin(self) -> None:
        """No step is done yet."""
        self.scale, self.change = (1, 0) if self._first is None else (self._first, 1)
        self.noise, self.progress, self.rate_scale = Noise(), 0.0, 1.0

    def passes(self, step: int, plan: Plan) -> int:
        """How many steps of the plan the update takes that begins with `step`."""
        in_epoch = plan.steps_per_epoch - step % plan.steps_per_epoch
        return max(1, min(self.scale, in_epoch, plan.total_steps - step))

    def take(self, update: Update) -> float:
        """Take note of an update that is about to be applied; returns what its learning rate is multiplied by."""
        if update.estimate is not None:
            self.noise.take(update.estimate, update.scale * update.stands_for)
        gain = self.noise.gain(update.scale) if update.passes > 1 else 1.0
        self.progress += gain
        self.rate_scale = self._rate_scale(update, gain)
        self.change, self.scale = update.change, update.batch_scale
        return self.rate_scale

    def _rate_scale(self, update: Update, gain: float) -> float:
        # A single batch is never scaled, not even a short one: with a batch that stays as it is nothing is different.
        if update.passes == 1:
            return 1.0
        match self._rule:
            case BatchRule.ADASCALE:
                return gain
            case BatchRule.SQRT:
                return math.sqrt(max(update.scale, 1.0))
            case BatchRule.LINEAR:
                return max(update.scale, 1.0)
            case BatchRule.NONE:
                return 1.0

    def state(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "change": self.change,
            "run": self._run,
            "progress": self.progress,
            "noise": self.noise.state(),
        }

    def load(self, state: Mapping[str, Any], step: int) -> None:
        """Go on from `state`; one that says nothing is of a job whose batch stayed as it was."""
        self.scale = int(state.get("scale", 1)) if self._rule is not BatchRule.NONE else 1
        self.change = int(state.get("change", 0)) if state.get("run", "") == self._run else 0
        self.progress = float(state.get("progress", step))
        self.noise = Noise.of(state.get("noise", {}))
