"""Chooses a size for each job by a multiple-choice knapsack: exact for hundreds of devices, by hulls for thousands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.scheduler.interface import Floats


@dataclass(frozen=True, slots=True)
class KnapsackOptions:
    """One job's sizes on one kind of device: devices and value of each, ascending."""

    devices: NDArray[np.int64]
    values: Floats
    kind: int = 0


Pick = tuple[int, int]
"""The index of the job's options and of the size within them, or NO_PICK."""
NO_PICK: Pick = (-1, -1)


def solve_exactly(jobs: Sequence[KnapsackOptions], capacity: int) -> list[Pick]:
    """Maximises the sum of values within `capacity` by dynamic programming, in jobs × sizes × capacity steps."""
    best = np.zeros(capacity + 1)
    picks = np.full((len(jobs), capacity + 1), -1, np.int16)
    for row, options in enumerate(jobs):
        with_job, pick = best.copy(), picks[row]
        for index, (size, value) in enumerate(zip(options.devices.tolist(), options.values.tolist(), strict=True)):
            if size > capacity or value <= 0:
                continue
            with_size = best[: capacity + 1 - size] + value
            better = with_size > with_job[size:]
            with_job[size:][better] = with_size[better]
            pick[size:][better] = index
        best = with_job
    reversed_picks, remaining = [], capacity
    for row in range(len(jobs) - 1, -1, -1):
        index = int(picks[row, remaining])
        reversed_picks.append((0, index) if index >= 0 else NO_PICK)
        remaining -= int(jobs[row].devices[index]) if index >= 0 else 0
    return reversed_picks[::-1]


def solve_by_hull(jobs: Sequence[Sequence[KnapsackOptions]], capacity: Sequence[int]) -> list[Pick]:
    """Solves the knapsack greedily, for any kinds of devices; only the last few devices may be used less well.

    Each job's options are climbed along their concave hulls, the steepest step of all jobs first. A job keeps the kind
    it starts with.
    """
    steps: list[tuple[int, int, int, int]] = []  # job, choice, place, devices
    slopes: list[float] = []
    for row, choices in enumerate(jobs):
        for option_index, options in enumerate(choices):
            sizes, values = options.devices.tolist(), options.values.tolist()
            size, value = 0, 0.0
            for index in _concave_hull(sizes, values):
                steps.append((row, option_index, index, sizes[index] - size))
                slopes.append((values[index] - value) / (sizes[index] - size))
                size, value = sizes[index], values[index]
    picks, remaining = [NO_PICK] * len(jobs), list(capacity)
    closed: set[tuple[int, int]] = set()
    for step in np.argsort(-np.array(slopes), kind="stable").tolist() if slopes else []:
        row, option_index, index, step_devices = steps[step]
        if picks[row][0] not in (-1, option_index) or (row, option_index) in closed:
            continue
        kind = jobs[row][option_index].kind
        if step_devices <= remaining[kind]:
            remaining[kind] -= step_devices
            picks[row] = option_index, index
        else:
            closed.add((row, option_index))
    return picks


def _concave_hull(sizes: list[int], values: list[float]) -> list[int]:
    """Returns the indices of the sizes on the rising part of the concave hull from the origin."""
    hull: list[int] = []
    for index, (size, value) in enumerate(zip(sizes, values, strict=True)):
        if value <= (values[hull[-1]] if hull else 0.0):
            continue
        while hull:
            last = hull[-1]
            low_size, low_value = (sizes[hull[-2]], values[hull[-2]]) if len(hull) > 1 else (0, 0.0)
            if (values[last] - low_value) * (size - low_size) > (value - low_value) * (sizes[last] - low_size):
                break
            hull.pop()
        hull.append(index)
    return hull
