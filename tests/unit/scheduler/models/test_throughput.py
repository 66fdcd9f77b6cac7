"""The model of step times, fitted to samples whose parameters are known."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from itertools import product

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.loop import SchedulingLoop
from elasticdl.scheduler.models.throughput import MIN_PARAMETER, FitObjective, ThroughputModel, fit_throughput
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.policies.elastic_first_come import ElasticFirstCome
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot, SpeedSample

TRUTH = ThroughputModel(0.05, 0.002, 0.2, 0.004, 0.04, 0.002, 1.8)
PLACES = ((1, 1), (1, 2), (1, 3), (1, 4), (2, 2), (2, 6), (4, 16))  # nodes, workers
BATCHES = (8, 32, 128)


def sample(nodes: int, workers: int, local: int, truth: ThroughputModel = TRUTH) -> SpeedSample:
    return SpeedSample(nodes, workers, local, float(truth.step_s(workers, nodes, local)), float(truth.grad_s(local)))


def samples(
    places: tuple[tuple[int, int], ...] = PLACES, batches: tuple[int, ...] = BATCHES, truth: ThroughputModel = TRUTH
) -> list[SpeedSample]:
    return [sample(*index, local, truth) for index, local in product(places, batches)]


def test_the_step_is_as_in_the_paper() -> None:
    model = ThroughputModel(0.1, 0.01, 0.5, 0.05, 0.2, 0.02, 2.0)

    assert model.grad_s(10) == pytest.approx(0.2)
    assert model.sync_s(4, 1) == pytest.approx(0.2 + 2 * 0.02)
    assert model.sync_s(4, 2) == pytest.approx(0.5 + 2 * 0.05)
    assert model.sync_s(1, 1) == MIN_PARAMETER
    assert model.step_s(1, 1, 10) == pytest.approx(0.2)
    assert model.step_s(4, 1, 10) == pytest.approx(math.hypot(0.2, 0.24))
    assert model.step_s(4, 1, 10, passes=3) == pytest.approx(2 * 0.2 + math.hypot(0.2, 0.24))


def test_without_overlap_both_parts_add_up_and_with_much_of_it_the_longer_counts() -> None:
    apart, hidden = replace(TRUTH, gamma=1.0), replace(TRUTH, gamma=10.0)
    grad, sync = float(TRUTH.grad_s(32)), float(TRUTH.sync_s(8, 2))

    assert apart.step_s(8, 2, 32) == pytest.approx(grad + sync)
    assert max(grad, sync) < hidden.step_s(8, 2, 32) < 1.01 * max(grad, sync)


def test_arrays_have_the_answers_of_their_elements() -> None:
    workers, nodes, local = np.array([1, 2, 8]), np.array([1, 1, 2]), np.array([16, 32, 64])

    together = TRUTH.step_s(workers, nodes, local)

    each = [float(TRUTH.step_s(*sample)) for sample in zip(workers, nodes, local, strict=True)]
    assert together == pytest.approx(each)


@pytest.mark.parametrize("gamma", [1.2, 1.8, 3.0])
def test_known_parameters_are_found_again(gamma: float) -> None:
    """As far as they are determined: times within 2 %, at unmeasured points within 5 %."""
    truth = replace(TRUTH, gamma=gamma)
    model_fitted = fit_throughput(samples(truth=truth))

    for nodes, workers, local, max_error in [(1, 1, 32, 0.02), (1, 4, 128, 0.02), (4, 16, 8, 0.02), (3, 10, 64, 0.05)]:
        assert model_fitted.step_s(workers, nodes, local) == pytest.approx(
            truth.step_s(workers, nodes, local), rel=max_error
        )
    assert (model_fitted.alpha_grad, model_fitted.beta_grad) == pytest.approx(
        (truth.alpha_grad, truth.beta_grad), rel=0.02
    )


def test_one_batch_size_says_half_of_a_step_is_fixed() -> None:
    model_fitted = fit_throughput(samples(batches=(32,)))

    assert model_fitted.alpha_grad == pytest.approx(float(TRUTH.grad_s(32)) / 2)
    assert model_fitted.grad_s(32) == pytest.approx(TRUTH.grad_s(32), rel=0.02)


def test_one_sample_alone_is_explained_and_more_workers_are_believed_to_cost_nothing() -> None:
    model_fitted = fit_throughput([sample(1, 1, 32)])

    assert model_fitted.step_s(1, 1, 32) == pytest.approx(TRUTH.grad_s(32), rel=1e-3)
    assert model_fitted.step_s(16, 4, 32) == pytest.approx(TRUTH.grad_s(32), rel=1e-3)


def test_several_nodes_are_never_believed_to_be_quicker_than_one() -> None:
    model_fitted = fit_throughput(samples(((1, 1), (1, 2), (1, 4))))

    assert model_fitted.alpha_nodes == pytest.approx(1.1 * model_fitted.alpha_local)
    assert model_fitted.beta_nodes == pytest.approx(max(1.1 * model_fitted.beta_local, MIN_PARAMETER))
    assert model_fitted.step_s(4, 1, 32) == pytest.approx(TRUTH.step_s(4, 1, 32), rel=0.05)


def test_without_samples_of_one_node_its_workers_are_assumed_not_to_wait() -> None:
    model_fitted = fit_throughput(samples(((1, 1), (2, 2), (4, 16))))

    assert (model_fitted.alpha_local, model_fitted.beta_local) == (MIN_PARAMETER, MIN_PARAMETER)
    assert model_fitted.step_s(16, 4, 32) == pytest.approx(TRUTH.step_s(16, 4, 32), rel=0.05)


def test_up_to_two_workers_say_nothing_about_what_a_third_costs() -> None:
    model_fitted = fit_throughput(samples(((1, 1), (1, 2), (2, 2))))

    assert (model_fitted.beta_nodes, model_fitted.beta_local) == (MIN_PARAMETER, MIN_PARAMETER)


def test_bounds_are_kept_whatever_was_measured() -> None:
    """Steps that take less than their gradients: clocks differ."""
    odd = [SpeedSample(nodes, workers, local, 0.01, 0.5) for (nodes, workers), local in product(PLACES, BATCHES)]
    *seconds, gamma = astuple(fit_throughput(odd))

    assert min(seconds) >= MIN_PARAMETER and 1.0 <= gamma <= 10.0
    assert np.all(np.isfinite(seconds))


@pytest.mark.parametrize("seed", range(10))
def test_the_gradient_is_that_of_finite_differences(seed: int) -> None:
    random = np.random.default_rng(seed)
    shown = [(*index, local) for index, local in product(PLACES, BATCHES)]
    nodes, workers, local = (np.array(column, float) for column in zip(*shown, strict=True))
    times = np.exp(random.normal(-2.0, 1.0, (2, len(shown))))
    objective = FitObjective(nodes, workers, local, *np.log(times))
    point = np.append(np.exp(random.normal(-3.0, 1.0, 6)), random.uniform(1.05, 6.0))

    value, slope = objective(point)

    assert math.isfinite(value)
    assert slope == pytest.approx(approx_fprime(point, lambda x: objective(x)[0], 1e-8), rel=1e-3, abs=1e-4)


def test_the_gradient_is_a_number_where_the_fit_is_perfect() -> None:
    objective = FitObjective(np.ones(1), np.ones(1), np.full(1, 8.0), np.log([0.5]), np.log([0.5]))

    value, slope = objective(np.array([0.1, 0.05, 0.1, 0.01, 0.1, 0.01, 1.0]))

    assert math.isfinite(value) and np.all(np.isfinite(slope))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0])
def test_what_is_no_time_never_reaches_a_policy(bad: float) -> None:
    """Whatever a job reports; a fit of what is left then is one of numbers."""
    good = sample(1, 1, 32)
    job = JobInfo("a", 0.0, speeds=(good, replace(good, step_s=bad), replace(good, compute_s=bad)))
    seen: list[JobInfo] = []

    class Watcher(ElasticFirstCome):
        def decide(self, snapshot: Snapshot, memory: object) -> Decision:
            seen.extend(snapshot.jobs)
            return Decision(AllocationPlan({sample.name: Allocation({}, "only looks") for sample in snapshot.jobs}))

    class Cluster:
        def snapshot(self, now: float) -> Snapshot:
            return Snapshot(now, (NodeInfo("n0", 4),), (job,))

        def apply(self, plan: AllocationPlan, now: float) -> None: ...

    SchedulingLoop(Watcher(), Cluster()).run_once(0.0)

    assert [sample.speeds for sample in seen] == [(good,)]
    assert np.all(np.isfinite(astuple(fit_throughput(seen[0].speeds))))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0])
def test_a_fit_leaves_out_what_is_no_time(bad: float) -> None:
    good = samples()
    spoiled = [*good, replace(good[0], step_s=bad), replace(good[0], compute_s=bad)]

    assert fit_throughput(spoiled) == fit_throughput(good)


def test_a_fit_needs_a_sample() -> None:
    with pytest.raises(ValueError, match="at least one"):
        fit_throughput([replace(sample(1, 1, 8), step_s=math.nan)])
