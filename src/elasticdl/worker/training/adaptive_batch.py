"""How many global batches make an update, and what that does to the learning rate.

The number is decided by the gradient noise, which is measured here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch

from elasticdl.collective.squared_norms import SquaredNorms, squared_norm
from elasticdl.data.plan import TrainingPlan
from elasticdl.spec import LrScaling

_DECAY = 0.999  # of the earlier estimates, over one global batch


class NoiseEstimate(NamedTuple):
    """The noise of one update's gradient. Either number may be negative: only the mean over many is near the truth."""

    square: float
    variance: float
    is_difference: bool = False  # from gradients one after the other, not beside each other


def estimate_from_parts(local: float, total: float, parts: int, scale: float) -> NoiseEstimate | None:
    """Estimate from `parts` gradients whose mean, weighted by their records, is the update's; None if impossible.

    `local` is the mean of their squared norms with the same weights, `total` the squared norm of the mean, `scale` the
    number of all records over a global batch. The weights make it exact for parts of different size.
    """
    if parts < 2 or not (math.isfinite(local) and math.isfinite(total)):
        return None
    return NoiseEstimate((parts * total - local) / (parts - 1), (local - total) * scale / (parts - 1))


def estimate_from_difference(before: float, now: float, product: float, scale: float) -> NoiseEstimate | None:
    """Estimate from two successive gradients, if an update has one part: their squared norms and their product."""
    local, total = (before + now) / 2, (before + now + 2 * product) / 4
    estimate = estimate_from_parts(local, total, 2, 2 * scale)
    return estimate._replace(is_difference=True) if estimate else None


@dataclass(slots=True)
class SmoothedNoise:
    """Estimates smoothed over some thousand global batches; starts over when batches are formed in another way."""

    _square: float = 0.0
    _variance: float = 0.0
    _weight: float = 0.0  # of all estimates so far: without it the zeros at the beginning would count
    _is_difference: bool = False

    def has_estimate(self, *, is_difference: bool) -> bool:
        """Whether there is an estimate that was made in this way."""
        return self._weight > 0 and self._is_difference == is_difference

    @property
    def square(self) -> float:
        return max(self._square / self._weight, 0.0) if self._weight else 0.0

    @property
    def variance(self) -> float:
        return max(self._variance / self._weight, 0.0) if self._weight else 0.0

    def add(self, estimate: NoiseEstimate, scale: float) -> None:
        """Add an estimate that stands for `scale` global batches."""
        if estimate.is_difference != self._is_difference:
            self._square = self._variance = self._weight = 0.0
            self._is_difference = estimate.is_difference
        decay = _DECAY**scale
        self._square = decay * self._square + (1 - decay) * estimate.square
        self._variance = decay * self._variance + (1 - decay) * estimate.variance
        self._weight = decay * self._weight + (1 - decay)

    def gain(self, scale: float) -> float:
        """How many steps of one global batch an update of `scale` global batches is worth: 1 … scale."""
        square, variance = self.square, self.variance
        if square + variance <= 0:
            return 1.0
        return (variance + square) / (variance / scale + square)

    def state_dict(self) -> dict[str, Any]:
        return {
            "square": self._square,
            "variance": self._variance,
            "weight": self._weight,
            "is_difference": self._is_difference,
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> SmoothedNoise:
        return cls(
            float(state.get("square", 0.0)),
            float(state.get("variance", 0.0)),
            float(state.get("weight", 0.0)),
            bool(state.get("is_difference", False)),
        )


@dataclass(frozen=True, slots=True)
class Update:
    """The description of an update: all members that apply it and its gradient have the same state."""

    records: int  # that it trains
    passes: int = 1  # steps of the plan that it takes
    scale: float = 1.0  # records the plan has for it, over a global batch
    estimate: NoiseEstimate | None = None
    stands_for: int = 1  # updates that the estimate stands for
    change: int = 0  # the newest change of the batch that holds from here on …
    batch_scale: int = 1  # … and its scale
    rate_factor: float = 1.0  # the factor of callbacks for the learning rate, from here on
    loss: float = 0.0  # the mean over its records

    def to_header(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> Update:
        estimate = header["estimate"]
        return cls(**{**header, "estimate": NoiseEstimate(*estimate) if estimate else None})


class BatchScaleChange(NamedTuple):
    """A change of the batch, numbered by the master. Step -1: from the next update on."""

    id: int
    step: int
    scale: int


def newest_change(changes: Iterable[BatchScaleChange], step: int, known: tuple[int, int]) -> tuple[int, int]:
    """The newest change whose step has come, as id and scale; `known` if none is newer."""
    return max(
        [known, *((change.id, change.scale) for change in changes if known[0] < change.id and change.step <= step)]
    )


class AdaptiveBatch:
    """The batch size of a job: how many global batches make an update now."""

    def __init__(
        self, rule: LrScaling, global_batch: int, schedule: Mapping[int, int] | None = None, run: str = ""
    ) -> None:
        """`run`: changes are numbered within a run; those of an earlier run, in a checkpoint, count no more."""
        self.global_batch = global_batch
        self.scale = 1
        self.change = 0
        self.noise = SmoothedNoise()
        self.progress = 0.0  # steps of one global batch that would have come as far
        self.rate_scale = 1.0  # of the learning rate, in the newest update
        self._rule = rule
        self._first = (schedule or {}).get(0)
        self._run = run

    def begin(self) -> None:
        """No step is done yet."""
        self.scale, self.change = (1, 0) if self._first is None else (self._first, 1)
        self.noise, self.progress, self.rate_scale = SmoothedNoise(), 0.0, 1.0

    def passes(self, step: int, plan: TrainingPlan) -> int:
        """How many steps of the plan the update takes that begins with `step`."""
        in_epoch = plan.steps_per_epoch - step % plan.steps_per_epoch
        return max(1, min(self.scale, in_epoch, plan.total_steps - step))

    def record_update(self, update: Update) -> float:
        """Record an update that is about to be applied; returns the factor of its learning rate."""
        if update.estimate is not None:
            self.noise.add(update.estimate, update.scale * update.stands_for)
        gain = self.noise.gain(update.scale) if update.passes > 1 else 1.0
        self.progress += gain
        self.rate_scale = self._compute_rate_scale(update, gain)
        self.change, self.scale = update.change, update.batch_scale
        return self.rate_scale

    def _compute_rate_scale(self, update: Update, gain: float) -> float:
        # A single batch is never scaled, not even a short one: if the batch does not change, nothing must change.
        if update.passes == 1:
            return 1.0
        match self._rule:
            case LrScaling.ADASCALE:
                return gain
            case LrScaling.SQRT:
                return math.sqrt(max(update.scale, 1.0))
            case LrScaling.LINEAR:
                return max(update.scale, 1.0)
            case LrScaling.NONE:
                return 1.0

    def state_dict(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "change": self.change,
            "run": self._run,
            "progress": self.progress,
            "noise": self.noise.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any], step: int) -> None:
        """Go on from `state`; an empty one is that of a job whose batch never changed."""
        self.scale = int(state.get("scale", 1)) if self._rule is not LrScaling.NONE else 1
        self.change = int(state.get("change", 0)) if state.get("run", "") == self._run else 0
        self.progress = float(state.get("progress", step))
        self.noise = SmoothedNoise.from_state_dict(state.get("noise", {}))


MEASURE_EVERY_UPDATES = 8  # updates


class NoiseMeter:
    """Measures the gradient noise in one worker.

    It keeps the gradient of an update only if updates have one part and the next one is measured.
    """

    def __init__(self, logical_ranks: int, squares: SquaredNorms) -> None:
        self._logical_ranks = logical_ranks
        self._squares = squares
        self._is_wanted = False  # the update that runs is measured …
        self._is_next = False  # … or the one after it
        self._is_difference = False
        self._before: tuple[torch.Tensor, float] | None = None  # the gradient of the update before, and its scale

    def begin_update(self, step: int, batch: AdaptiveBatch) -> None:
        """An update begins: decide whether it is measured."""
        self._is_difference = self._logical_ranks * batch.scale == 1
        is_new = not batch.noise.has_estimate(is_difference=self._is_difference)
        number = step // batch.scale
        self._is_wanted = is_new or number % MEASURE_EVERY_UPDATES == 0
        self._is_next = is_new or (number + 1) % MEASURE_EVERY_UPDATES == 0
        self._squares.is_on = self._is_wanted and not self._is_difference

    def estimate(
        self, flat: torch.Tensor, squares: Sequence[float], parts: int, scale: float, share_left: float
    ) -> NoiseEstimate | None:
        """Estimate the noise of the update with the gradient `flat`; None if it is not measured, or cannot be.

        `squares` are those of the logical ranks, weighted by planned records; filters have left `share_left` of them.
        """
        if self._is_difference:
            return self._estimate_from_difference(flat, scale)
        self._before = None
        return (
            estimate_from_parts(sum(squares) / share_left, squared_norm(flat), parts, scale)
            if self._is_wanted and share_left
            else None
        )

    def _estimate_from_difference(self, flat: torch.Tensor, scale: float) -> NoiseEstimate | None:
        estimate = None
        if self._is_wanted and self._before is not None:
            before, scale_before = self._before
            if scale == scale_before:  # batches of different size cannot be compared
                product = float(torch.dot(before, flat))
                estimate = estimate_from_difference(squared_norm(before), squared_norm(flat), product, scale)
        self._before = (flat.clone(), scale) if self._is_next else None
        return estimate
