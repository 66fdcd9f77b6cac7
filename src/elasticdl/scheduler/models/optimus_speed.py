"""Optimus's model of speed (Peng et al., EuroSys'18): steps a second by workers and parameter servers.

With p servers, w workers and coefficients that are not negative:
- asynchronous: w / (a + b·w/p + c·w + d·p) steps of one worker a second;
- synchronous:  1 / (a·M/w + b + c·w/p + d·w + e·p) steps of all a second, of M records together;
- all-reduce:   1 / (a·M/w + b + d·w): the synchronous form without servers. p = w would say the same with two
  coefficients more than can be told apart.
The inverse is linear in the coefficients: they are fitted by non-negative least squares, to relative errors. What was
measured goes before the model. Kinds of devices and how workers are spread are not known to it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from elasticdl.scheduler.interface import BatchConfig, Floats
from elasticdl.scheduler.snapshot import SpeedSample

Form = Literal["asynchronous", "synchronous", "all-reduce"]
COEFFICIENTS: Mapping[Form, int] = {"asynchronous": 4, "synchronous": 5, "all-reduce": 3}
"""As many different points are needed at least."""


@dataclass(frozen=True)
class Point:
    """What was measured."""

    workers: int
    servers: int
    speed: float  # steps a second: of all workers together, or in the asynchronous form the sum of theirs
    records: int  # of such a step


@dataclass(frozen=True)
class OptimusSpeed:
    """Fitted `Rates`: records a second, with as many servers as workers."""

    form: Form
    coefficients: tuple[float, ...]
    records: int  # of a step: of all workers together, or of one in the asynchronous form
    measured: Mapping[tuple[int, int], float] = field(default_factory=dict)  # steps a second, by workers and servers

    def steps(self, workers: ArrayLike, servers: ArrayLike) -> Floats:
        """A second, by the model alone. 0 workers, or none of the servers it needs: 0."""
        w, p = np.broadcast_arrays(np.asarray(workers, float), np.asarray(servers, float))
        able = (w > 0) & ((p > 0) | (self.form == "all-reduce"))
        columns = _columns(self.form, np.where(able, w, 1.0), np.where(able, np.maximum(p, 1.0), 1.0), self.records)
        needs = np.maximum(columns @ np.array(self.coefficients), 1e-12)
        return np.where(able, (w if self.form == "asynchronous" else 1.0) / needs, 0.0)

    def at(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        w, _ = np.broadcast_arrays(np.asarray(workers, float), np.asarray(nodes, float))
        speed = self.steps(w, w)
        for (count, servers), known in self.measured.items():
            if self.form == "all-reduce" or servers == count:
                speed = np.where(w == count, known, speed)
        result: Floats = speed * self.records
        return result

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        return None


def fit(form: Form, points: Iterable[Point], records: int) -> OptimusSpeed | None:
    """`records` are those of a step from now on. None: too few different points to tell the coefficients.

    Points that are no numbers, or no speeds, are left out; those of the same workers, servers and records count as
    one, their mean.
    """
    same: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for one in points:
        is_able = one.workers > 0 and one.records > 0 and (one.servers > 0 or form == "all-reduce")
        if is_able and math.isfinite(one.speed) and one.speed > 0:
            same[one.workers, one.servers, one.records].append(one.speed)
    if len(same) < COEFFICIENTS[form]:
        return None
    means = {key: sum(speeds) / len(speeds) for key, speeds in same.items()}
    w, p, size = np.array(list(means), float).T
    speeds = np.array(list(means.values()))
    needs = (w if form == "asynchronous" else 1.0) / speeds
    found, _ = nnls(_columns(form, w, np.maximum(p, 1.0), size) / needs[:, None], np.ones(len(needs)))
    measured = {key[:2]: speed for key, speed in means.items() if key[2] == records}
    return OptimusSpeed(form, tuple(found.tolist()), records, measured)


def of_steps(speeds: Sequence[SpeedSample]) -> list[Point]:
    """Measured steps of all-reduce workers, as points."""
    return [
        Point(one.workers, 0, 1.0 / one.step_s, one.workers * one.local_batch)
        for one in speeds
        if math.isfinite(one.step_s) and one.step_s > 0
    ]


def _columns(form: Form, w: Floats, p: Floats, records: ArrayLike) -> Floats:
    one = np.ones_like(w)
    if form == "asynchronous":
        return np.stack([one, w / p, w, p], axis=-1)
    each = np.asarray(records) / w
    if form == "synchronous":
        return np.stack([each, one, w / p, w, p], axis=-1)
    return np.stack([each, one, w], axis=-1)
