"""Which size for which job: a multiple-choice knapsack. Exact for a few hundred devices, by the hull for thousands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elasticdl.scheduler.interface import Floats

Choice = tuple[NDArray[np.int64], Floats]
"""Devices and values of one job's sizes, the least first. None of them is free: no devices are worth nothing."""


def exact(choices: Sequence[Choice], capacity: int) -> list[int]:
    """For each job the place of its best size, −1 for none: the greatest sum of values within `capacity`."""
    best = np.zeros(capacity + 1)
    picks = np.full((len(choices), capacity + 1), -1, np.int16)
    for row, (sizes, values) in enumerate(choices):
        new = best.copy()
        pick = picks[row]
        for place, (size, value) in enumerate(zip(sizes.tolist(), values.tolist(), strict=True)):
            if size > capacity or value <= 0:
                continue
            with_it = best[: capacity + 1 - size] + value
            better = with_it > new[size:] + 1e-12
            new[size:][better] = with_it[better]
            pick[size:][better] = place
        best = new
    found, left = [], capacity
    for row in range(len(choices) - 1, -1, -1):
        place = int(picks[row, left])
        found.append(place)
        if place >= 0:
            left -= int(choices[row][0][place])
    return found[::-1]


def by_hull(choices: Sequence[Choice], capacity: int) -> list[int]:
    """As `exact`, but for what the last few devices would bring: steps along each job's hull, the steepest first."""
    jobs, places, sizes, slopes = [], [], [], []
    for row, (cost, value) in enumerate(choices):
        hull = _hull(cost, value)
        before, worth = 0, 0.0
        for place in hull:
            jobs.append(row)
            places.append(place)
            sizes.append(int(cost[place]) - before)
            slopes.append((float(value[place]) - worth) / sizes[-1])
            before, worth = int(cost[place]), float(value[place])
    found = [-1] * len(choices)
    closed = [False] * len(choices)
    left = capacity
    for step in np.argsort(-np.array(slopes), kind="stable").tolist() if slopes else []:
        row = jobs[step]
        if closed[row]:
            continue
        if sizes[step] <= left:
            left -= sizes[step]
            found[row] = places[step]
        else:
            closed[row] = True
    return found


def _hull(sizes: NDArray[np.int64], values: Floats) -> list[int]:
    """Places of the sizes on the concave hull from nothing up, as far as it rises."""
    hull: list[int] = []
    for place in range(len(sizes)):
        if values[place] <= (values[hull[-1]] if hull else 0.0):
            continue
        while hull:
            last = hull[-1]
            size, value = (sizes[hull[-2]], values[hull[-2]]) if len(hull) > 1 else (0, 0.0)
            if (values[last] - value) * (sizes[place] - size) > (values[place] - value) * (sizes[last] - size):
                break
            hull.pop()
        hull.append(place)
    return hull
