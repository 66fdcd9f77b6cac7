"""Pollux's search: ranking, repairing and finding plans."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from elasticdl.scheduler.policies.pollux import GeneticSearchProblem, rank_plans, search_plans
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot, SpeedSample
from tests.unit.scheduler.cases import Concave, job, nodes, running


def speeds_of(workers: int) -> dict[str, Any]:
    """As measured with this many."""
    return {"speeds": (SpeedSample(1, workers, 8, 0.1, 0.1),)}


def problem_of(cluster: tuple[NodeInfo, ...], jobs: list[JobInfo], exponent: float = -1.0) -> GeneticSearchProblem:
    return GeneticSearchProblem.from_snapshot(
        Snapshot(1000.0, cluster, tuple(jobs)), jobs, list(cluster), exponent, 30.0
    )


def fronts_by_hand(values: np.ndarray) -> np.ndarray:
    """Computes the fronts one after another: plans that no remaining plan dominates."""
    first, second = values
    front = np.full(len(first), -1)
    for number in range(len(first)):
        left = np.flatnonzero(front < 0)
        for plan in left:
            better = (first[left] >= first[plan]) & (second[left] >= second[plan])
            strictly = (first[left] > first[plan]) | (second[left] > second[plan])
            if not np.any(better & strictly):
                front[plan] = number
    return front


@pytest.mark.parametrize("seed", range(20))
def test_fronts_equal_those_of_a_pairwise_comparison(seed: int) -> None:
    random = np.random.default_rng(seed)
    # Small whole numbers: many plans are equal in one value, or in both.
    values = random.integers(0, 6, (2, 40)).astype(float) if seed % 2 else random.random((2, 40))

    front, _ = rank_plans(values)

    assert front.tolist() == fronts_by_hand(values).tolist()


def test_isolated_plans_have_a_larger_crowding_distance_and_the_ends_the_largest() -> None:
    _, crowding = rank_plans(np.array([[0.0, 1.0, 1.2, 3.0, 9.0], [9.0, 6.0, 5.9, 5.0, 0.0]]))

    assert np.isinf(crowding[[0, 4]]).all()
    assert crowding[3] > crowding[1] > crowding[2] > 0


@pytest.mark.parametrize("seed", range(20))
def test_repaired_plans_keep_all_rules(seed: int) -> None:
    chance, random = Random(seed), np.random.default_rng(seed)
    cluster = nodes(*(chance.choice((1, 4, 8)) for _ in range(5)))
    jobs = [
        job(
            f"j{index}",
            chance.choice((1, 1, 2)),
            chance.choice((2, 4, 32)),
            sizes=chance.choice(((), (), (2, 4))),
            devices=chance.choice((1, 1, 2)),
            **speeds_of(chance.choice((1, 2, 8))),
        )
        for index in range(6)
    ]
    problem = problem_of(cluster, jobs)
    states = problem.repair(random.integers(0, 9, (50, 6, 5)).astype(np.int16), random)

    assert (states >= 0).all() and states.any()
    assert ((states * problem.devices_per_worker[:, None]).sum(axis=1) <= problem.devices).all()
    for row, plan in enumerate(jobs):
        counts = states[:, row].sum(axis=1)
        assert all(count == 0 or plan.allows_size(int(count)) for count in counts)
        assert counts.max() <= max(2 * plan.speeds[0].workers, plan.min_workers)  # at most double what was measured
    wide = (states > 0) & (np.count_nonzero(states, axis=2) > 1)[:, :, None]
    assert (wide.sum(axis=1) <= 1).all()  # one job on several nodes a node


def test_a_valid_plan_is_not_repaired() -> None:
    jobs = [job("a", 1, 8, **speeds_of(8)), job("b", 1, 8, **speeds_of(8))]
    problem = problem_of(nodes(4, 4), jobs)
    plan = np.array([[[4, 1], [0, 3]]], np.int16)

    assert (problem.repair(plan.copy(), np.random.default_rng(0)) == plan).all()


def test_fitness_is_the_power_mean_of_speedups_over_a_fair_share() -> None:
    """By hand: two jobs on 8 devices, fair are 4 each; rates are square roots."""
    jobs = [
        running("a", {"n0": 4}, 1, 8, rates=Concave(0.5), **speeds_of(8)),
        job("b", 1, 8, rates=Concave(0.5), **speeds_of(8)),
    ]
    problem = problem_of(nodes(4, 4), jobs)
    plans = np.array([[[4, 0], [0, 4]], [[4, 0], [0, 1]], [[1, 0], [0, 4]]], np.int16)
    scale, moved = 2 / 8, 1000 / 1030  # what a change leaves

    def mean(a: float, b: float) -> float:
        return 2 / (1 / (a * scale + 1e-3) + 1 / (b * scale + 1e-3))

    plans_found, utility = problem.fitness(plans)

    assert plans_found == pytest.approx([mean(1.0, moved), mean(1.0, 0.5 * moved), mean(0.5 * moved, moved)])
    assert utility == pytest.approx([2 / 8, 1.5 / 8, 1.5 / 8])


def test_a_job_on_several_nodes_is_as_slow_as_its_model_says() -> None:
    jobs = [job("a", 1, 8, rates=Concave(1.0, apart=0.5), **speeds_of(8))]
    problem = problem_of(nodes(4, 4), jobs)

    fitness, _ = problem.fitness(np.array([[[4, 0]], [[2, 2]]], np.int16))

    assert fitness[0] == pytest.approx(2 * fitness[1], rel=0.01)


def test_the_search_finds_the_best_plan() -> None:
    """Two jobs, two nodes of two: all plans are few enough to try."""
    jobs = [job("a", 1, 4, rates=Concave(0.9), **speeds_of(4)), job("b", 1, 4, rates=Concave(0.4), **speeds_of(4))]
    problem = problem_of(nodes(2, 2), jobs)
    every = np.stack(np.meshgrid(*[np.arange(3)] * 4, indexing="ij"), axis=-1).reshape(-1, 2, 2).astype(np.int16)
    random = np.random.default_rng(3)
    allowed = every[(problem.repair(every.copy(), random) == every).all(axis=(1, 2))]

    plans_found = search_plans(problem, problem.current[None], 40, 40, random)

    assert problem.fitness(plans_found)[0].max() == pytest.approx(problem.fitness(allowed)[0].max())


def test_a_population_has_no_duplicate_plans() -> None:
    jobs = [job(f"j{index}", 1, 4, **speeds_of(4)) for index in range(3)]
    plans_found = search_plans(
        problem_of(nodes(4), jobs), np.zeros((1, 3, 1), np.int16), 20, 10, np.random.default_rng(0)
    )

    assert len({plan.tobytes() for plan in plans_found}) == len(plans_found) <= 20
