"""A small application whose measurements are round numbers."""

from __future__ import annotations

import numpy as np

from elasticdl.scheduler.models.goodput import BatchLimits
from elasticdl.sim.traces.pollux import MeasuredApplication

LIMITS = BatchLimits(initial=10, maximum=80, local_minimum=5, local_maximum=40)


def application(epochs: int = 3) -> MeasuredApplication:
    """A step takes 0.1 s and 0.01 s a record; on one node 0.1 s more, on two 0.3 s, of waiting for others.

    Half of a gradient's square is noise at the initial batch of 10. An epoch is 100 steps of it.
    """
    placements = {
        placement: np.array([(local, 0.1 + 0.01 * local + sync, sync) for local in (5, 10, 20, 40)])
        for placement, sync in {(1,): 0.0, (2,): 0.1, (1, 1): 0.3, (1, 2): 0.4}.items()
    }
    points = np.array(
        [
            (len(placement), sum(placement), local, step, sync)
            for placement, rows in placements.items()
            for local, step, sync in rows
        ]
        + [(4, 8, local, 1.1 + 0.01 * local, 1.0) for local in (5, 10, 20, 40)]
    )
    # Rows of an epoch: progress, square, variance, iterations.
    validation = {
        10: np.array([(100.0 * epoch, 1.0, 1.0, 100.0 * epoch) for epoch in (1, 2, 3)]),
        80: np.array([(120.0 * epoch, 1.0, 3.0, 20.0 * epoch) for epoch in (1, 2, 3)]),
    }
    return MeasuredApplication("small", LIMITS, epochs, placements, points, validation)
