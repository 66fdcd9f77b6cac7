"""Gradients and hessians on a grid: sums of them are exact, so trees do not depend on how rows are split.

XGBoost adds float32 gradients in float64. If all are multiples of one power of two, and none is larger than 2²² of it,
a sum of up to 2³¹ of them is exact in any order. The grid is that of the largest value of all rows, not of a part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.boosting import _native
from elasticdl.errors import LossNotFinite, SpecError

Floats = NDArray[np.float32]
# The largest of the numbers of all members, for each position. Exact, and the same for every order of the members.
FindLargest = Callable[[tuple[float, float]], tuple[float, float]]

GRID_BITS = 22
_MASK = (1 << 64) - 1


class _Formula(IntEnum):
    """As in native/src/boosting/gradients.h."""

    SQUARED, LOGISTIC, POISSON, GAMMA, TWEEDIE, PSEUDO_HUBER, HINGE, SOFTMAX = range(8)


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter of XGBoost that a formula depends on, with XGBoost's default."""

    name: str
    default: float


_FORMULAS: Mapping[str, tuple[_Formula, _Parameter | None]] = {
    "reg:squarederror": (_Formula.SQUARED, None),
    "reg:logistic": (_Formula.LOGISTIC, None),
    "binary:logistic": (_Formula.LOGISTIC, None),
    "binary:logitraw": (_Formula.LOGISTIC, None),
    "binary:hinge": (_Formula.HINGE, None),
    "count:poisson": (_Formula.POISSON, _Parameter("max_delta_step", 0.7)),
    "reg:gamma": (_Formula.GAMMA, None),
    "reg:tweedie": (_Formula.TWEEDIE, _Parameter("tweedie_variance_power", 1.5)),
    "reg:pseudohubererror": (_Formula.PSEUDO_HUBER, _Parameter("huber_slope", 1.0)),
    "multi:softprob": (_Formula.SOFTMAX, None),
    "multi:softmax": (_Formula.SOFTMAX, None),
}
OBJECTIVES = frozenset(_FORMULAS)  # those that can be reproducible


@dataclass(frozen=True, slots=True)
class GridObjective:
    """An objective whose gradients lie on a grid."""

    formula: int
    classes: int
    parameter: float
    positive_weight: float
    subsample: float
    seed: int

    @classmethod
    def from_params(cls, params: Mapping[str, Any], seed: int) -> GridObjective:
        """The objective that XGBoost's parameters name. Raises SpecError for one that has no such formula."""
        name = str(params.get("objective", "reg:squarederror"))
        if name not in _FORMULAS:
            raise SpecError(
                f"objective: {name} has no reproducible form, only {', '.join(sorted(OBJECTIVES))} have; "
                "with reproducible=false XGBoost's own is used"
            )
        formula, parameter = _FORMULAS[name]
        classes = int(params.get("num_class", 1)) if formula is _Formula.SOFTMAX else 1
        return cls(
            formula,
            classes,
            float(params.get(parameter.name, parameter.default)) if parameter is not None else 0.0,
            float(params.get("scale_pos_weight", 1.0)) if formula is _Formula.LOGISTIC else 1.0,
            float(params.get("subsample", 1.0)),
            seed,
        )

    def compute(
        self,
        part: LabelledPart,
        margins: Floats,
        round_: int,
        find_largest: FindLargest,
        threads: int = 1,
    ) -> tuple[Floats, Floats]:
        """Gradients and hessians of the rows of a part. `find_largest` asks all members.

        Raises LossNotFinite where one is infinite or no number.
        """
        gradients, hessians = np.empty_like(margins), np.empty_like(margins)
        _native.compute(
            self.formula, margins, part.labels, part.weights, gradients, hessians, classes=self.classes,
            parameter=self.parameter, positive_weight=self.positive_weight, threads=threads,
        )  # fmt: skip
        if self.subsample < 1:
            _native.sample(
                gradients, hessians, classes=self.classes, first_record=part.first_record,
                key=sampling_key(self.seed, round_), share=self.subsample, threads=threads,
            )  # fmt: skip
        values = (gradients, hessians)
        own_gradient, own_hessian = (_native.largest(array, threads=threads) for array in values)
        for array, largest in zip(values, find_largest((own_gradient, own_hessian)), strict=True):
            if not math.isfinite(largest):
                raise LossNotFinite(
                    f"round {round_}: a gradient is {largest}; labels may be out of the objective's range, or margins "
                    "have grown too large: a lower learning rate (eta) or max_delta_step may help"
                )
            if largest:
                _native.snap(array, shift=grid_shift(largest), threads=threads)
        return gradients, hessians


@dataclass(frozen=True, slots=True)
class LabelledPart:
    """What gradients depend on beside margins: consecutive records, their labels and weights."""

    first_record: int
    labels: Floats
    weights: Floats | None = None


def grid_shift(largest: float) -> float:
    """A number whose sum with any value up to `largest` has no digit below the grid.

    With 2^e as the next power of two from `largest` on, sums lie between 2^(e+1) and 2^(e+2), where neighbours in
    float32 are 2^(e-22) apart.
    """
    _, exponent = math.frexp(largest)  # largest < 2^exponent
    return 1.5 * 2.0 ** (exponent + 1)


def sampling_key(seed: int, round_: int) -> int:
    """The key of the sample of a round, mixed so that neighbouring rounds and seeds have unrelated samples."""
    key = (seed * 0x9E3779B97F4A7C15 + round_ * 0xD1B54A32D192ED03 + 0x8CB92BA72F3D8DD7) & _MASK
    key = ((key ^ (key >> 32)) * 0xD6E8FEB86659FD93) & _MASK
    return key ^ (key >> 32)
