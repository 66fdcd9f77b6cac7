"""Which size for which job: a multiple-choice knapsack. Exact for a few hundred devices, by hulls for thousands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.scheduler.interface import Floats


@dataclass(frozen=True, slots=True)
class KnapsackOptions:
    """One job's sizes on one kind of device: what each takes and what it is worth, the least first."""

    devices: NDArray[np.int64]
    values: Floats
    kind: int = 0


Pick = tuple[int, int]
"""Which choice of a job and which size of it; NONE: neither."""
NO_PICK: Pick = (-1, -1)


def solve_exactly(jobs: Sequence[KnapsackOptions], capacity: int) -> list[Pick]:
    """The greatest sum of values within `capacity`, by dynamic programming: jobs × sizes × capacity."""
    best = np.zeros(capacity + 1)
    picks = np.full((len(jobs), capacity + 1), -1, np.int16)
    for row, choice in enumerate(jobs):
        new, pick = best.copy(), picks[row]
        for place, (size, value) in enumerate(zip(choice.devices.tolist(), choice.values.tolist(), strict=True)):
            if size > capacity or value <= 0:
                continue
            with_it = best[: capacity + 1 - size] + value
            better = with_it > new[size:]
            new[size:][better] = with_it[better]
            pick[size:][better] = place
        best = new
    found, left = [], capacity
    for row in range(len(jobs) - 1, -1, -1):
        place = int(picks[row, left])
        found.append((0, place) if place >= 0 else NO_PICK)
        left -= int(jobs[row].devices[place]) if place >= 0 else 0
    return found[::-1]


def solve_by_hull(jobs: Sequence[Sequence[KnapsackOptions]], capacity: Sequence[int]) -> list[Pick]:
    """As `exact`, but for what the last few devices would bring, and for several kinds of devices.

    Each job's choices are climbed along their concave hulls, the steepest step of all jobs first. A job stays with the
    kind it began with.
    """
    steps: list[tuple[int, int, int, int]] = []  # job, choice, place, devices
    slopes: list[float] = []
    for row, choices in enumerate(jobs):
        for which, choice in enumerate(choices):
            sizes, values = choice.devices.tolist(), choice.values.tolist()
            size, value = 0, 0.0
            for place in _concave_hull(sizes, values):
                steps.append((row, which, place, sizes[place] - size))
                slopes.append((values[place] - value) / (sizes[place] - size))
                size, value = sizes[place], values[place]
    found, left = [NO_PICK] * len(jobs), list(capacity)
    closed: set[tuple[int, int]] = set()
    for step in np.argsort(-np.array(slopes), kind="stable").tolist() if slopes else []:
        row, which, place, more = steps[step]
        if found[row][0] not in (-1, which) or (row, which) in closed:
            continue
        kind = jobs[row][which].kind
        if more <= left[kind]:
            left[kind] -= more
            found[row] = which, place
        else:
            closed.add((row, which))
    return found


def _concave_hull(sizes: list[int], values: list[float]) -> list[int]:
    """Places of the sizes on the concave hull from nothing up, as far as it rises."""
    hull: list[int] = []
    for place, (size, value) in enumerate(zip(sizes, values, strict=True)):
        if value <= (values[hull[-1]] if hull else 0.0):
            continue
        while hull:
            last = hull[-1]
            low, worth = (sizes[hull[-2]], values[hull[-2]]) if len(hull) > 1 else (0, 0.0)
            if (values[last] - worth) * (size - low) > (value - worth) * (sizes[last] - low):
                break
            hull.pop()
        hull.append(place)
    return hull
