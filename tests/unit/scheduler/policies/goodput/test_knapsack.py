"""Sizes for jobs, compared with an exhaustive search."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from elasticdl.scheduler.policies.goodput import knapsack
from elasticdl.scheduler.policies.goodput.knapsack import NO_PICK, KnapsackOptions, Pick


def random_jobs(seed: int, jobs: int = 4, sizes: int = 4, *, is_concave: bool = False) -> list[KnapsackOptions]:
    random = np.random.default_rng(seed)
    best = []
    for _ in range(jobs):
        devices = np.sort(random.choice(np.arange(1, 9), sizes, replace=False))
        values = random.uniform(0.5, 2.0) * devices ** random.uniform(0.2, 0.9)
        best.append(KnapsackOptions(devices, values if is_concave else values * random.uniform(0.5, 1.5, sizes)))
    return best


def worth(jobs: list[KnapsackOptions], picks: list[Pick]) -> tuple[float, int]:
    """And the devices it takes."""
    taken = [(options, index) for options, (_, index) in zip(jobs, picks, strict=True) if index >= 0]
    return sum(float(options.values[p]) for options, p in taken), sum(int(options.devices[p]) for options, p in taken)


def best_of_all(jobs: list[KnapsackOptions], capacity: int) -> float:
    ways = product(*([NO_PICK, *((0, index) for index in range(len(options.devices)))] for options in jobs))
    return max(value for value, devices in (worth(jobs, list(way)) for way in ways) if devices <= capacity)


@pytest.mark.parametrize("seed", range(30))
def test_the_exact_solution_is_the_best_of_all_choices(seed: int) -> None:
    jobs, capacity = random_jobs(seed), 3 + seed % 15
    value, devices = worth(jobs, knapsack.solve_exactly(jobs, capacity))

    assert devices <= capacity
    assert value == pytest.approx(best_of_all(jobs, capacity))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("is_concave", [False, True])
def test_the_hull_solution_loses_at_most_the_value_of_one_job(seed: int, is_concave: bool) -> None:
    """The loss is less than the greatest value of one job: at most one step did not fit."""
    jobs, capacity = random_jobs(seed, jobs=12, is_concave=is_concave), 10 + seed
    value, devices = worth(jobs, knapsack.solve_by_hull([[options] for options in jobs], [capacity]))
    best, _ = worth(jobs, knapsack.solve_exactly(jobs, capacity))

    assert devices <= capacity
    assert best - max(float(options.values.max()) for options in jobs) <= value <= best + 1e-9


def test_the_hull_solution_is_exact_for_concave_single_device_steps() -> None:
    random = np.random.default_rng(0)
    jobs = [
        KnapsackOptions(np.arange(1, 9), np.float64(random.uniform(0.5, 2.0)) * np.arange(1, 9) ** 0.6)
        for _ in range(6)
    ]

    for capacity in range(0, 50, 3):
        value, _ = worth(jobs, knapsack.solve_by_hull([[options] for options in jobs], [capacity]))
        assert value == pytest.approx(worth(jobs, knapsack.solve_exactly(jobs, capacity))[0])


def test_with_enough_capacity_every_job_gets_its_best_choice() -> None:
    jobs = random_jobs(1)
    best = [(0, int(np.argmax(options.values))) for options in jobs]

    assert knapsack.solve_exactly(jobs, 100) == best
    assert knapsack.solve_by_hull([[options] for options in jobs], [100]) == best


def test_no_capacity_and_no_jobs_have_empty_answers() -> None:
    jobs = random_jobs(1)

    assert (
        knapsack.solve_exactly(jobs, 0) == [NO_PICK] * 4 == knapsack.solve_by_hull([[options] for options in jobs], [0])
    )
    assert knapsack.solve_exactly([], 8) == [] == knapsack.solve_by_hull([], [8])
    worthless = KnapsackOptions(np.array([1, 2]), np.array([0.0, -1.0]))
    assert knapsack.solve_exactly([worthless], 8) == [NO_PICK] == knapsack.solve_by_hull([[worthless]], [8])


@pytest.mark.parametrize("seed", range(10))
def test_each_kind_has_its_own_capacity_and_each_job_uses_one_kind(seed: int) -> None:
    random = np.random.default_rng(seed)
    jobs = []
    for _ in range(8):
        sizes = np.arange(1, 5)
        both = [KnapsackOptions(sizes, np.array(random.uniform(0.5, 2.0) * sizes**0.7, float), kind) for kind in (0, 1)]
        jobs.append(both[: random.integers(1, 3)])
    capacity = [5, 7]
    used = [0, 0]

    for choices, (which, index) in zip(jobs, knapsack.solve_by_hull(jobs, capacity), strict=True):
        if which >= 0:
            used[choices[which].kind] += int(choices[which].devices[index])

    assert used[0] == 5  # all want it
    assert used[1] <= 7
