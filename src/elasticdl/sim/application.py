"""What a kind of job really does, as it was measured: step times by placement, gradient noise by epoch and batch.

Reads the files of Pollux's artifact (one directory an application): placements.csv and scalability.csv have step and
synchronisation times, validation-B.csv the progress and gradient statistics of each epoch with a total batch of B.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.errors import DataError
from elasticdl.scheduler.interface import Floats
from elasticdl.scheduler.models.goodput import BatchLimits, gain, split
from elasticdl.scheduler.snapshot import Noise

Placement = tuple[int, ...]
"""Workers on each of its nodes."""

MOST_NODES = 16  # that were measured …
PER_NODE = 4  # … with so many devices each


def spread(workers: int, per_node: int = PER_NODE) -> Placement:
    """So many workers on as few nodes as possible."""
    full, rest = divmod(workers, per_node)
    return (*([per_node] * full), *([rest] if rest else []))


@dataclass
class Application:
    """One application's measurements; interpolated between them."""

    name: str
    limits: BatchLimits
    epochs: int
    placements: Mapping[Placement, Floats]  # rows (local batch, step_s, sync_s)
    points: Floats  # rows (nodes, workers, local batch, step_s, sync_s)
    validation: Mapping[int, Floats]  # by total batch: rows (progress, square, variance), an epoch each
    _steps: dict[tuple[Placement, int], tuple[float, float]] = field(default_factory=dict)
    _noise: dict[tuple[int, int], Noise] = field(default_factory=dict)
    _alone: dict[tuple[int | None, int], float] = field(default_factory=dict)

    def step_s(self, placement: Placement, local: int) -> tuple[float, float]:
        """(whole step, waiting for others) with so many records a worker."""
        if (placement, local) not in self._steps:
            self._steps[placement, local] = self._interpolated(placement, local)
        return self._steps[placement, local]

    def noise(self, batch: int, epoch: int) -> Noise:
        if (batch, epoch) not in self._noise:
            sizes = list(self.validation)
            rows = np.array([self.validation[size][epoch, 1:] for size in sizes])
            square, variance = (float(np.interp(batch, sizes, rows[:, column])) for column in (0, 1))
            self._noise[batch, epoch] = Noise(square, variance)
        return self._noise[batch, epoch]

    @cached_property
    def progress(self) -> Floats:
        """In steps of the initial batch, at the end of each epoch."""
        least: Floats = np.min([rows[: self.epochs, 0] for rows in self.validation.values()], axis=0)
        return least

    def iterations(self, batch: int, epoch: int) -> float:
        """Steps with this batch until the end of an epoch, as they were recorded."""
        sizes = list(self.validation)
        return float(np.interp(batch, sizes, [self.validation[size][epoch, 3] for size in sizes]))

    def alone_s(self, batch: int | None, workers: float) -> float:
        """Of a whole run with so many workers; None: the best batch in each epoch. Less than one worker: in turns."""
        if workers < 1:
            return self.alone_s(batch, 1) / workers
        low, rest = int(workers), workers - int(workers)
        if rest > 1e-9:
            slower, faster = 1.0 / self.alone_s(batch, low), 1.0 / self.alone_s(batch, low + 1)
            return 1.0 / (slower * (1 - rest) + faster * rest)
        if (batch, low) not in self._alone:
            self._alone[batch, low] = self._whole_run_s(batch, low)
        return self._alone[batch, low]

    def _whole_run_s(self, batch: int | None, workers: int) -> float:
        limits = self.limits
        workers = min(workers, max(1, (batch or limits.maximum) // limits.local_minimum))
        least = min(max(limits.initial, limits.local_minimum * workers), limits.maximum)
        work = np.diff(self.progress, prepend=0.0)
        best = np.zeros(len(work))
        for total in [batch] if batch else np.geomspace(least, limits.maximum, 50).astype(int):
            local, passes = (int(one) for one in split(total, workers, limits))
            if local < limits.local_minimum:
                continue
            step, sync = self.step_s(spread(workers), local)
            real = local * passes * workers
            gains = [float(gain(self.noise(real, epoch), real / limits.initial)) for epoch in range(len(work))]
            best = np.maximum(best, np.array(gains) / (step + (step - sync) * (passes - 1)))
        return float(np.sum(work / best))

    @cached_property
    def _everywhere(self) -> tuple[Any, Any]:
        from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

        at, times = self.points[:, :3], self.points[:, 3:]
        return LinearNDInterpolator(at, times), NearestNDInterpolator(at, times, rescale=True)

    def _interpolated(self, placement: Placement, local: int) -> tuple[float, float]:
        turned = min(placement[i:] + placement[:i] for i in range(len(placement)))
        if turned in self.placements:
            rows = self.placements[turned]
            return tuple(float(np.interp(local, rows[:, 0], rows[:, column])) for column in (1, 2))  # type: ignore[return-value]
        where = [min(len(placement), MOST_NODES), sum(placement), local]
        linear, nearest = self._everywhere
        found = linear([where])[0]
        if not np.all(np.isfinite(found)):  # outside of what was measured
            found = nearest([where])[0]
        return float(found[0]), float(found[1])


def load(directory: Path, epochs: int = 0, local_maximum: int = 0) -> Application:
    """0: as many epochs, and as large a local batch, as were measured."""
    placements = _rows(directory / "placements.csv", ("local_bsz", "step_time", "sync_time"), key="placement")
    grouped: dict[Placement, list[tuple[float, ...]]] = {}
    for name, row in placements:
        grouped.setdefault(tuple(int(digit) for digit in name), []).append(row)
    tables = {placement: np.array(sorted(rows)) for placement, rows in grouped.items()}
    means: dict[tuple[float, ...], list[tuple[float, ...]]] = {}
    for placement, rows in grouped.items():
        for local, step, sync in rows:
            means.setdefault((len(placement), sum(placement), local), []).append((step, sync))
    columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    scaled = [row for _, row in _rows(directory / "scalability.csv", columns)]
    points = np.array([(*at, *np.mean(times, axis=0)) for at, times in sorted(means.items())] + scaled)
    validation = {}
    for path in directory.glob("validation-*.csv"):
        rows = [row for _, row in _rows(path, ("progress", "grad_sqr", "grad_var", "iteration"))]
        validation[int(path.stem.rpartition("-")[2])] = np.array(rows)
    if not validation:
        raise DataError(f"{directory}: expected validation-B.csv files of an application, found none")
    validation = dict(sorted(validation.items()))
    locals_ = np.concatenate([rows[:, 0] for rows in tables.values()])
    limits = BatchLimits(
        min(validation), max(validation), int(locals_.min()), min(local_maximum or 1 << 30, int(locals_.max()))
    )
    epochs = epochs or min(len(rows) for rows in validation.values())
    return Application(directory.name, limits, epochs, tables, points, validation)


def _rows(path: Path, columns: tuple[str, ...], key: str = "") -> list[tuple[str, tuple[float, ...]]]:
    try:
        with path.open(newline="") as file:
            return [
                (row[key] if key else "", tuple(float(row[one]) for one in columns)) for row in csv.DictReader(file)
            ]
    except (OSError, KeyError, TypeError, ValueError) as exc:
        raise DataError(f"{path}: expected columns {', '.join(columns)} with numbers: {exc}") from exc
