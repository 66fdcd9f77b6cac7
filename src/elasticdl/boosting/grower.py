"""Grows trees on one member's part of the data, while the other members of the round do so on theirs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xgboost import Booster, QuantileDMatrix

from elasticdl.boosting.cut_points import Bins, CutPoints
from elasticdl.boosting.gradients import FindLargest, Floats, GridObjective, LabelledPart
from elasticdl.boosting.parameters import TreeParameters


@dataclass(frozen=True, slots=True)
class TreePart:
    """Consecutive records of the training data, and where they stand: the sum of all trees so far."""

    rows: LabelledPart
    bins: Bins
    margins: Floats  # by class, if there are several

    def __post_init__(self) -> None:
        assert len(self.rows.labels) == len(self.bins) == len(self.margins)


class TreeGrower:
    """The trees of one round of membership, in the thread that opened its communicator."""

    def __init__(
        self,
        part: TreePart,
        cuts: CutPoints,
        parameters: TreeParameters,
        base_score: float,
        find_largest: FindLargest,
        threads: int = 1,
    ) -> None:
        """`find_largest` asks all members for their largest gradients."""
        self._rows = part.rows
        self._parameters = parameters
        self._find_largest = find_largest
        self._threads = threads
        self._objective = GridObjective.from_params(parameters.model_dump(exclude_none=True), parameters.seed)
        self._settings = parameters.to_xgboost(threads, "cpu") | {"base_score": base_score}
        self._data = QuantileDMatrix(
            cuts.decode(part.bins), max_bin=parameters.max_bin, nthread=threads,
            ref=cuts.make_reference(parameters.max_bin, threads),
        )  # fmt: skip
        self.boosters: list[Booster] = []  # their trees, in this order
        self.margins = part.margins

    def grow(self, round_: int) -> None:
        """Grow the trees of a round, counted from the start of the job; the members call it at the same time.

        Raises XGBoostError if a member is gone. The margins are then those before.
        """
        if not self.boosters or self._parameters.samples_columns:
            self._data.set_base_margin(self.margins)
            self.boosters.append(Booster(self._settings, [self._data]))
            self._predict()  # from now on XGBoost adds to these margins what it grows
        gradients, hessians = self._objective.compute(
            self._rows, self.margins, round_, self._find_largest, self._threads
        )
        self.boosters[-1].boost(self._data, round_, grad=gradients, hess=hessians)
        self.margins = self._predict()

    def _predict(self) -> Floats:
        margins: NDArray[np.float32] = self.boosters[-1].predict(self._data, output_margin=True, training=True)
        return margins
