"""How long a step of data-parallel training takes: Pollux's throughput model (OSDI'21), fitted to measured times.

    T_grad(m)    = α_g + β_g·m                                  forward and backward of m records
    T_sync(n, w) = 0 | α_l + β_l·(w−2) | α_n + β_n·(w−2)        one worker | one node | several nodes
    T_step       = (T_grad^γ + T_sync^γ)^(1/γ)                  γ: how much the two overlap

What was never measured is assumed to be fast (priors of the authors' code), so that a scheduler tries it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from elasticdl.scheduler.interface import Floats
from elasticdl.scheduler.snapshot import SpeedSample

MIN_PARAMETER = 1e-8
_SOFTNESS = 1e-3
_INITIAL_GUESS = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)


@dataclass(frozen=True, slots=True)
class ThroughputModel:
    """The seven parameters of the model; α and β are in seconds."""

    alpha_grad: float
    beta_grad: float
    alpha_nodes: float
    beta_nodes: float
    alpha_local: float
    beta_local: float
    gamma: float

    def grad_s(self, local_batch: ArrayLike) -> Floats:
        return self.alpha_grad + self.beta_grad * np.asarray(local_batch, float)

    def sync_s(self, workers: ArrayLike, nodes: ArrayLike) -> Floats:
        workers, nodes = np.asarray(workers), np.asarray(nodes)
        beyond = np.maximum(workers - 2, MIN_PARAMETER)
        local = np.where(workers > 1, self.alpha_local + self.beta_local * beyond, MIN_PARAMETER)
        return np.where(nodes > 1, self.alpha_nodes + self.beta_nodes * beyond, local)

    def step_s(self, workers: ArrayLike, nodes: ArrayLike, local_batch: ArrayLike, passes: ArrayLike = 1) -> Floats:
        """Returns the time of one update with `passes` gradients, the last of which is exchanged."""
        grad, sync = self.grad_s(local_batch), self.sync_s(workers, nodes)
        overlapped = np.exp(np.logaddexp(self.gamma * np.log(grad), self.gamma * np.log(sync)) / self.gamma)
        return (np.asarray(passes) - 1) * grad + overlapped


def fit_throughput(samples: Sequence[SpeedSample]) -> ThroughputModel:
    """Returns the parameters that explain the samples best. Samples with invalid times are ignored; one is needed."""
    from scipy.optimize import minimize

    samples = [sample for sample in samples if _is_time(sample.step_s) and _is_time(sample.compute_s)]
    if not samples:
        raise ValueError("expected at least one sample with finite times above 0, received none")
    nodes = np.array([sample.nodes for sample in samples])
    workers = np.array([sample.workers for sample in samples])
    local = np.array([sample.local_batch for sample in samples], float)
    grad_log = np.log([sample.compute_s for sample in samples])
    step_log = np.log([sample.step_s for sample in samples])
    start, lower = list(_INITIAL_GUESS), [MIN_PARAMETER] * 6 + [1.0]
    upper: list[float | None] = [None] * 6 + [10.0]
    for index, value in _unidentifiable_parameters(nodes, workers, local, grad_log).items():
        start[index] = lower[index] = upper[index] = value
    objective = FitObjective(nodes, workers, local, grad_log, step_log)
    bounds = list(zip(lower, upper, strict=True))
    with limit_to_one_blas_thread():
        fitted = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        # The objective has a kink where one of its two errors is 0, and the search may stop there too early.
        smooth = FitObjective(nodes, workers, local, grad_log, step_log, softness=_SOFTNESS)
        refined = minimize(smooth, fitted, jac=True, method="L-BFGS-B", bounds=bounds).x
    if objective(refined)[0] < objective(fitted)[0] - _SOFTNESS:
        fitted = refined
    model = ThroughputModel(*(float(value) for value in fitted))
    if not np.any(nodes > 1):
        # Several nodes are never faster than one.
        values = list(astuple(model))
        values[2], values[3] = max(values[2], 1.1 * values[4]), max(values[3], 1.1 * values[5])
        model = ThroughputModel(*values)
    return model


def _is_time(seconds: float) -> bool:
    return 0 < seconds < math.inf


def _unidentifiable_parameters(
    nodes: Floats, workers: Floats, local_batch: Floats, grad_log: Floats
) -> dict[int, float]:
    """Returns fixed values of the parameters that these samples do not determine, by index."""
    fixed: dict[int, float] = {}
    if len(np.unique(local_batch)) == 1:
        fixed[0] = float(np.mean(np.exp(grad_log))) / 2
    if not np.any(nodes > 1):
        fixed |= {2: MIN_PARAMETER, 3: MIN_PARAMETER}
    if not np.any((nodes == 1) & (workers > 1)):
        fixed |= {4: MIN_PARAMETER, 5: MIN_PARAMETER}
    if not np.any(workers > 2):
        fixed |= {3: MIN_PARAMETER, 5: MIN_PARAMETER}
    return fixed


class FitObjective:
    """RMSLE of both times, with a small weight towards γ = 1 and against retrogression, and its gradient.

    `softness` rounds off the kinks where an error is 0.
    """

    def __init__(
        self, nodes: Floats, workers: Floats, local: Floats, grad_log: Floats, step_log: Floats, softness: float = 0.0
    ) -> None:
        self.softness = softness
        self.local, self.grad_log, self.step_log = local, grad_log, step_log
        self.far = (nodes > 1).astype(float)
        self.near = ((nodes <= 1) & (workers > 1)).astype(float)
        self.beyond = np.maximum(workers - 2, MIN_PARAMETER)

    def __call__(self, values: Floats) -> tuple[float, Floats]:
        alpha_g, beta_g, alpha_n, beta_n, alpha_l, beta_l, gamma = values
        grad = alpha_g + beta_g * self.local
        alone = 1.0 - self.far - self.near
        sync = (
            self.far * (alpha_n + beta_n * self.beyond)
            + self.near * (alpha_l + beta_l * self.beyond)
            + alone * MIN_PARAMETER
        )
        log_grad, log_sync = np.log(grad), np.log(sync)
        log_step = np.logaddexp(gamma * log_grad, gamma * log_sync) / gamma
        first, d_first = _rms(log_grad - self.grad_log, self.softness)
        second, d_second = _rms(log_step - self.step_log, self.softness)
        # The derivative of log(step) by log(grad).
        of_grad = np.exp(gamma * (log_grad - log_step))
        by_grad = d_first / grad + d_second * of_grad / grad
        by_sync = d_second * (1.0 - of_grad) / sync
        by_gamma = d_second * (of_grad * log_grad + (1.0 - of_grad) * log_sync - log_step) / gamma
        ratio_n, ratio_l = beta_n / alpha_n, beta_l / alpha_l
        value = first + second + 1e-3 * (gamma - 1) ** 2 + 1e-2 * (ratio_n**2 + ratio_l**2)
        slope = np.array(
            [
                by_grad.sum(),
                (by_grad * self.local).sum(),
                (by_sync * self.far).sum() - 2e-2 * ratio_n**2 / alpha_n,
                (by_sync * self.far * self.beyond).sum() + 2e-2 * ratio_n / alpha_n,
                (by_sync * self.near).sum() - 2e-2 * ratio_l**2 / alpha_l,
                (by_sync * self.near * self.beyond).sum() + 2e-2 * ratio_l / alpha_l,
                by_gamma.sum() + 2e-3 * (gamma - 1),
            ]
        )
        return float(value), slope


def _rms(errors: Floats, softness: float) -> tuple[float, Floats]:
    """Returns the root mean square, and its derivative by each error."""
    rms = float(np.sqrt(np.mean(errors**2) + softness**2))
    return rms - softness, errors / (len(errors) * rms) if rms > 0 else np.zeros_like(errors)


def limit_to_one_blas_thread() -> AbstractContextManager[Any]:
    """Limits BLAS to one thread: it would wake a pool of threads for every small fit, and wait 100 times as long."""
    limit: AbstractContextManager[Any] = _threadpool_controller().limit(limits=1, user_api="blas")
    return limit


@cache
def _threadpool_controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
