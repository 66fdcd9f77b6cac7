"""Linear programs of Gavel: which part of its time each job should have on each kind of device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from elasticdl.scheduler.interface import Floats

_SLACK = 1e-6  # of what the first program found, left to the second
_TINY = 1e-12


@dataclass(frozen=True)
class Needs:
    """`rates` by job and kind with all its workers, 0 where it cannot run; `scales`: the devices that these take."""

    devices: Floats  # by kind
    scales: Floats  # by job
    rates: Floats

    @staticmethod
    def of(devices: Sequence[float], scales: Sequence[float], rates: Sequence[Sequence[float]]) -> Needs:
        return Needs(np.array(devices, float), np.array(scales, float), np.array(rates, float))


def fractions(needs: Needs, least: Sequence[float]) -> Floats:
    """X by job and kind: the greatest z for which each job's rate is z times its `least`, so much for all.

    What time is left then gives the greatest sum of rates, each a part of the job's best.
    """
    z, first = most_alike(needs, least)
    best = np.maximum(needs.rates.max(axis=1, keepdims=True), _TINY)
    second = _solve(needs, np.append(-(needs.rates / best).ravel(), 0.0), least, fixed=z * (1 - _SLACK))
    return first if second is None else second[1]


def most_alike(needs: Needs, least: Sequence[float]) -> tuple[float, Floats]:
    """The greatest z, and X."""
    objective = np.zeros(needs.rates.size + 1)
    objective[-1] = -1.0
    found = _solve(needs, objective, least)
    # The program has always the answer 0: without one the solver gave up.
    return found if found is not None else (0.0, np.zeros(needs.rates.shape))


def isolated(needs: Needs) -> Floats:
    """The rate of each job that has 1/n of every kind to itself."""
    jobs = max(len(needs.scales), 1)
    parts = needs.devices / jobs / needs.scales[:, None]
    parts /= np.maximum(parts.sum(axis=1, keepdims=True), 1.0)
    rate: Floats = np.maximum((needs.rates * parts).sum(axis=1), _TINY)
    return rate


def least_rho(
    needs: Needs, left: Sequence[float], elapsed: Sequence[float], alone: Sequence[float]
) -> tuple[float, list[float]]:
    """The least rho with which every job ends within rho times `alone`, counted from its start; the rates it takes."""
    work, past, ideal = np.array(left), np.array(elapsed), np.array(alone)

    def rates(rho: float) -> Floats:
        wanted: Floats = work / np.maximum(rho * ideal - past, 1e-9)
        return wanted

    low = float((past / ideal).max())
    high = 2 * low + 1.0
    while not _is_enough(needs, rates(high)) and high < 1e12:
        low, high = high, 4 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _is_enough(needs, rates(middle)) else (middle, high)
    return high, rates(high).tolist()


def _is_enough(needs: Needs, rates: Floats) -> bool:
    return most_alike(needs, rates.tolist())[0] >= 1.0 - _SLACK


def _solve(
    needs: Needs, objective: Floats, least: Sequence[float], fixed: float | None = None
) -> tuple[float, Floats] | None:
    """z, and X that minimises `objective` over (X, z); z is free, or `fixed`."""
    jobs, kinds = needs.rates.shape
    best = np.maximum(needs.rates.max(axis=1), _TINY)
    part = np.maximum(np.array(least, float), _TINY) / best  # of its best rate, at z = 1
    scale = float(part.max())  # the solver's z is near 1
    row, kind = np.divmod(np.arange(jobs * kinds), kinds)
    every, last = np.arange(jobs * kinds), np.full(jobs, jobs * kinds)
    # Rows: all of its time; the devices of each kind; least * z - rate <= 0.
    values = [np.ones(jobs * kinds), needs.scales[row], -needs.rates.ravel() / best[row], part / scale]
    rows = [row, jobs + kind, jobs + kinds + row, jobs + kinds + np.arange(jobs)]
    columns = [every, every, every, last]
    table = coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(2 * jobs + kinds, jobs * kinds + 1),
    )
    limits = np.concatenate([np.ones(jobs), needs.devices, np.zeros(jobs)])
    lower = np.append(np.zeros(jobs * kinds), 0.0 if fixed is None else fixed * scale)
    upper = np.append((needs.rates.ravel() > 0).astype(float), np.inf if fixed is None else fixed * scale)
    found = linprog(objective, table.tocsr(), limits, bounds=np.stack([lower, upper], axis=1), method="highs")
    if found.x is None:
        return None
    return float(found.x[-1]) / scale, np.clip(found.x[:-1].reshape(jobs, kinds), 0.0, 1.0)
