"""At most one option each, within capacities."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from elasticdl.scheduler.policies.sia import choose_options


def test_without_options_nothing_is_chosen() -> None:
    assert choose_options([], [], [], [4.0], 0.0) == []


def test_options_with_a_positive_cost_are_not_chosen() -> None:
    assert choose_options([0, 1], [1.0, -1.0], [[1.0], [1.0]], [2.0], 0.0) == [1]


def test_the_choice_is_as_good_as_exhaustive_search() -> None:
    dice = np.random.default_rng(5)
    whose, costs = [0, 0, 1, 1, 2, 2, 3, 3], -dice.random(8)
    uses = dice.integers(1, 4, (8, 2)).astype(float)

    def total(taken: tuple[int, ...]) -> float:
        owners = [whose[index] for index in taken]
        is_able = len(set(owners)) == len(owners) and bool((uses[list(taken)].sum(axis=0) <= 5).all())
        return float(costs[list(taken)].sum()) if is_able else 0.0

    every = itertools.chain.from_iterable(itertools.combinations(range(8), size) for size in range(5))
    options_chosen = choose_options(whose, costs.tolist(), uses.tolist(), [5.0, 5.0], 0.0)
    assert total(tuple(options_chosen)) == pytest.approx(min(map(total, every)))
