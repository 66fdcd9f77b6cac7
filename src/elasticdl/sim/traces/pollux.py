"""Workloads of Pollux's artifact: measured applications, and jobs that train them and choose their batch."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from elasticdl.errors import DataError
from elasticdl.scheduler.interface import BatchConfig, Floats, RateModel
from elasticdl.scheduler.models.goodput import AdaptiveBatchModel, BatchLimits, FixedBatchModel, gain_ratio, split_batch
from elasticdl.scheduler.models.throughput import ThroughputModel, fit_throughput
from elasticdl.scheduler.snapshot import GradientNoise, SpeedSample
from elasticdl.sim.interface import JobReport, WorkersPerNode, Workload
from elasticdl.sim.traces import csv_traces
from elasticdl.sim.traces.trace import TraceJob, check_order

MeasuredPlacement = tuple[int, ...]
"""Workers on each node."""

MAX_MEASURED_NODES = 16
MEASURED_DEVICES_PER_NODE = 4


def pack_on_nodes(workers: int, per_node: int = MEASURED_DEVICES_PER_NODE) -> MeasuredPlacement:
    """Returns this many workers on as few nodes as possible."""
    full_nodes, remaining = divmod(workers, per_node)
    return (*([per_node] * full_nodes), *([remaining] if remaining else []))


@dataclass
class MeasuredApplication:
    """The measurements of one application, interpolated."""

    name: str
    limits: BatchLimits
    epochs: int
    placements: Mapping[MeasuredPlacement, Floats]  # rows (local batch, step_s, sync_s)
    points: Floats  # rows (nodes, workers, local batch, step_s, sync_s)
    validation: Mapping[int, Floats]  # by total batch: a row (progress, |g|², variance, iterations) per epoch
    _step_times: dict[tuple[MeasuredPlacement, int], tuple[float, float]] = field(default_factory=dict)
    _noise: dict[tuple[int, int], GradientNoise] = field(default_factory=dict)
    _isolated_durations: dict[tuple[int | None, int], float] = field(default_factory=dict)

    def step_times_s(self, placement: MeasuredPlacement, local: int) -> tuple[float, float]:
        """Returns the seconds of (a step, waiting for other workers) with this many records per worker."""
        if (placement, local) not in self._step_times:
            self._step_times[placement, local] = self._interpolate_step_times(placement, local)
        return self._step_times[placement, local]

    def noise(self, batch: int, epoch: int) -> GradientNoise:
        if (batch, epoch) not in self._noise:
            sizes = list(self.validation)
            rows = np.array([self.validation[size][epoch, 1:] for size in sizes])
            norm_sq, variance = (float(np.interp(batch, sizes, rows[:, column])) for column in (0, 1))
            self._noise[batch, epoch] = GradientNoise(norm_sq, variance)
        return self._noise[batch, epoch]

    @cached_property
    def progress(self) -> Floats:
        """The progress at the end of each epoch, in steps of the initial batch."""
        least: Floats = np.min([rows[: self.epochs, 0] for rows in self.validation.values()], axis=0)
        return least

    def iterations(self, batch: int, epoch: int) -> float:
        """Returns the recorded number of steps with this batch until the end of an epoch."""
        sizes = list(self.validation)
        return float(np.interp(batch, sizes, [self.validation[size][epoch, 3] for size in sizes]))

    def isolated_duration_s(self, batch: int | None, workers: float) -> float:
        """Returns the duration of a run, with the best batch in each epoch if `batch` is None.

        With less than one worker the job takes turns.
        """
        if workers < 1:
            return self.isolated_duration_s(batch, 1) / workers
        whole_workers, fraction = int(workers), workers - int(workers)
        if fraction > 1e-9:
            slower, faster = (
                1.0 / self.isolated_duration_s(batch, whole_workers),
                1.0 / self.isolated_duration_s(batch, whole_workers + 1),
            )
            return 1.0 / (slower * (1 - fraction) + faster * fraction)
        if (batch, whole_workers) not in self._isolated_durations:
            self._isolated_durations[batch, whole_workers] = self._whole_run_duration_s(batch, whole_workers)
        return self._isolated_durations[batch, whole_workers]

    def _whole_run_duration_s(self, batch: int | None, workers: int) -> float:
        limits = self.limits
        workers = min(workers, max(1, (batch or limits.maximum) // limits.local_minimum))
        min_batch = min(max(limits.initial, limits.local_minimum * workers), limits.maximum)
        work = np.diff(self.progress, prepend=0.0)
        best = np.zeros(len(work))
        for total in [batch] if batch else np.geomspace(min_batch, limits.maximum, 50).astype(int):
            local, passes = (int(value) for value in split_batch(total, workers, limits))
            if local < limits.local_minimum:
                continue
            step, sync = self.step_times_s(pack_on_nodes(workers), local)
            total_records = local * passes * workers
            gains = [
                float(gain_ratio(self.noise(total_records, epoch), total_records / limits.initial))
                for epoch in range(len(work))
            ]
            best = np.maximum(best, np.array(gains) / (step + (step - sync) * (passes - 1)))
        return float(np.sum(work / best))

    @cached_property
    def _interpolators(self) -> tuple[Any, Any]:
        from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

        points, times = self.points[:, :3], self.points[:, 3:]
        return LinearNDInterpolator(points, times), NearestNDInterpolator(points, times, rescale=True)

    def _interpolate_step_times(self, placement: MeasuredPlacement, local: int) -> tuple[float, float]:
        rotated = min(placement[i:] + placement[:i] for i in range(len(placement)))
        if rotated in self.placements:
            rows = self.placements[rotated]
            return tuple(float(np.interp(local, rows[:, 0], rows[:, column])) for column in (1, 2))  # type: ignore[return-value]
        point = [min(len(placement), MAX_MEASURED_NODES), sum(placement), local]
        linear, nearest = self._interpolators
        times = linear([point])[0]
        if not np.all(np.isfinite(times)):  # outside the measured range
            times = nearest([point])[0]
        return float(times[0]), float(times[1])


def load_application(directory: Path, epochs: int = 0, local_maximum: int = 0) -> MeasuredApplication:
    """Reads the measurements of one application of Pollux's artifact from its directory.

    placements.csv and scalability.csv have step and synchronisation times, validation-B.csv the progress and the
    gradient statistics of each epoch with a total batch of B. 0 means as many epochs, and as large a local batch, as
    were measured.
    """
    placements = _read_columns(directory / "placements.csv", ("local_bsz", "step_time", "sync_time"), key="placement")
    grouped: dict[MeasuredPlacement, list[tuple[float, ...]]] = {}
    for name, row in placements:
        grouped.setdefault(tuple(int(digit) for digit in name), []).append(row)
    tables = {placement: np.array(sorted(rows)) for placement, rows in grouped.items()}
    means: dict[tuple[float, ...], list[tuple[float, ...]]] = {}
    for placement, rows in grouped.items():
        for local, step, sync in rows:
            means.setdefault((len(placement), sum(placement), local), []).append((step, sync))
    columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    scaled = [row for _, row in _read_columns(directory / "scalability.csv", columns)]
    points = np.array([(*key, *np.mean(times, axis=0)) for key, times in sorted(means.items())] + scaled)
    validation = {}
    for path in directory.glob("validation-*.csv"):
        rows = [row for _, row in _read_columns(path, ("progress", "grad_sqr", "grad_var", "iteration"))]
        validation[int(path.stem.rpartition("-")[2])] = np.array(rows)
    if not validation:
        raise DataError(f"{directory}: expected validation-B.csv files of an application, found none")
    validation = dict(sorted(validation.items()))
    local_batches = np.concatenate([rows[:, 0] for rows in tables.values()])
    limits = BatchLimits(
        min(validation),
        max(validation),
        int(local_batches.min()),
        min(local_maximum or 1 << 30, int(local_batches.max())),
    )
    epochs = epochs or min(len(rows) for rows in validation.values())
    return MeasuredApplication(directory.name, limits, epochs, tables, points, validation)


def _read_columns(path: Path, columns: tuple[str, ...], key: str = "") -> list[tuple[str, tuple[float, ...]]]:
    try:
        with path.open(newline="") as file:
            return [
                (row[key] if key else "", tuple(float(row[column]) for column in columns))
                for row in csv.DictReader(file)
            ]
    except (OSError, KeyError, TypeError, ValueError) as exc:
        raise DataError(f"{path}: expected columns {', '.join(columns)} with numbers: {exc}") from exc


class ProfiledWorkload(Workload):
    """A job that trains a measured application, measures itself, fits its model and chooses its batch.

    `batch` is the user's, for the whole run; None: it adapts. As in Pollux's simulator, by which this is checked,
    progress is gain / step time, an epoch ends at the smallest progress that any batch size needed for it, and the
    batch is chosen again at every epoch and every decision.
    """

    def __init__(self, application: MeasuredApplication, batch: int | None, *, is_oracle: bool = False) -> None:
        self.application = application
        self._batch = batch
        self._is_oracle = is_oracle
        self._placement: WorkersPerNode = ()
        self._local, self._passes = 0, 1
        self._epoch, self._progress = 0, 0.0
        self._samples: dict[tuple[int, int, int], SpeedSample] = {}
        self._fitted: ThroughputModel | None = None
        self._noise: GradientNoise | None = None
        self._rate = 0.0
        self._report: JobReport | None = None

    @property
    def name(self) -> str:
        return self.application.name

    @property
    def is_done(self) -> bool:
        return self._epoch >= self.application.epochs

    def place(self, placement: WorkersPerNode, kind: str, batch: BatchConfig | None) -> None:
        self._placement = tuple(count for count in placement if count)
        self._choose_batch()

    def rate(self) -> float:
        return self._rate

    def work_to_next_change(self) -> float:
        return float(self.application.progress[self._epoch]) - self._progress

    def advance(self, work: float) -> bool:
        if not self._placement:
            return False
        before = self._rate
        self._record_sample()
        if work >= self.work_to_next_change() - 1e-9:
            self._progress = float(self.application.progress[self._epoch])
            self._epoch += 1
        else:
            self._progress += work
        self._report = None
        if not self.is_done:
            self._choose_batch()
        return self._rate != before

    def report(self) -> JobReport:
        if self._report is None:
            work_left = float(self.application.progress[-1]) - self._progress
            rates = self._rate_model()
            if isinstance(rates, OracleRateModel):
                work_left = rates.steps_left()
            self._report = JobReport(tuple(self._samples.values()), self._noise, rates, work_left, self._progress)
        return self._report

    def isolated_duration_s(self, workers: float) -> float:
        return self.application.isolated_duration_s(self._batch, workers)

    def _rate_model(self) -> RateModel | None:
        limits = self.application.limits
        if self._is_oracle and self._batch is not None:
            return OracleRateModel(self.application, self._batch, self._epoch)
        if not self._samples or self._noise is None:
            return None
        self._fitted = self._fitted or fit_throughput(list(self._samples.values()))
        if self._batch is not None:
            return FixedBatchModel(self._fitted, self._noise, limits, self._batch)
        return AdaptiveBatchModel(self._fitted, self._noise, limits)

    def _choose_batch(self) -> None:
        """Chooses the batch for the current workers, and so the rate."""
        if not self._placement or self.is_done:
            self._rate = 0.0
            return
        limits, workers = self.application.limits, sum(self._placement)
        rates = self._rate_model() if self._batch is None else None
        if rates is not None and (best := rates.batch(workers, len(self._placement))) is not None:
            self._local, self._passes = best.local_batch, best.passes
        else:
            total = self._batch or max(limits.initial, limits.local_minimum * workers)
            local, passes = split_batch(total, workers, limits)
            self._local, self._passes = int(local), int(passes)
        step, sync = self.application.step_times_s(self._placement, self._local)
        scale = self._local * self._passes * workers / limits.initial
        noise = self.application.noise(self._local * self._passes * workers, self._epoch)
        self._rate = float(gain_ratio(noise, scale)) / (step + (step - sync) * (self._passes - 1))

    def _record_sample(self) -> None:
        nodes, workers = len(self._placement), sum(self._placement)
        self._noise = self.application.noise(self._local * self._passes * workers, self._epoch)
        key = (nodes, workers, self._local)
        if key not in self._samples:
            step, sync = self.application.step_times_s(self._placement, self._local)
            self._samples[key] = SpeedSample(*key, step, step - sync)
            self._fitted = None


@dataclass(frozen=True)
class OracleRateModel(RateModel):
    """The true rates of a job with a fixed batch, as in Optimus+Oracle of Pollux's evaluation."""

    application: MeasuredApplication
    total_batch: int
    epoch: int

    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        counts = np.asarray(workers)
        rates = [self._rate(int(count)) for count in counts.ravel()]
        return np.array(rates).reshape(counts.shape)

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        local, passes = split_batch(self.total_batch, workers, self.application.limits)
        return BatchConfig(int(local), int(passes))

    def steps_left(self) -> float:
        """Returns the recorded steps with this batch until the end."""
        app = self.application
        last = app.epochs - 1
        return (
            app.iterations(self.total_batch, last) - app.iterations(self.total_batch, self.epoch)
            if self.epoch < last
            else 1.0
        )

    def step_s(self, workers: int) -> float:
        local, passes = (int(value) for value in split_batch(self.total_batch, workers, self.application.limits))
        if workers == 1 and passes < 2:  # as the authors predict it
            local, passes = math.ceil(self.total_batch / 2), 2
        step, sync = self.application.step_times_s(pack_on_nodes(workers), local)
        return step + (step - sync) * (passes - 1)

    def _rate(self, workers: int) -> float:
        return 1.0 / self.step_s(workers) if workers else 0.0


POLLUX_COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
MAX_MEASURED_WORKERS = 64
PINNED_BATCHES = {"ncf": 32768}  # runs on one device with this batch
_EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
_LOCAL_MAXIMUM = {"yolov3": 8}


def load_applications(directory: Path) -> Mapping[str, MeasuredApplication]:
    """Loads all applications measured below `directory`, by name."""
    directories = sorted(path.parent for path in directory.glob("*/placements.csv"))
    if not directories:
        raise DataError(f"{directory}: expected directories with placements.csv, one an application; found none")
    return {
        path.name: load_application(path, _EPOCHS.get(path.name, 0), _LOCAL_MAXIMUM.get(path.name, 0))
        for path in directories
    }


def read_pollux_trace(
    path: Path, applications: Mapping[str, MeasuredApplication], *, adapts_batch: bool, needs_oracle: bool
) -> Iterator[TraceJob]:
    """Reads workload-N.csv (name, time, application, num_replicas, batch_size), in order of time."""
    return check_order(path, _parse_pollux_jobs(path, applications, adapts_batch, needs_oracle))


def _parse_pollux_jobs(
    path: Path, applications: Mapping[str, MeasuredApplication], adapts_batch: bool, needs_oracle: bool
) -> Iterator[tuple[int, TraceJob]]:
    for row in csv_traces.read_rows(path, POLLUX_COLUMNS):
        name, submitted_at, application = row.text("name"), row.number("time"), row.text("application")
        workers, batch = row.count("num_replicas"), row.count("batch_size")
        if application not in applications:
            raise row.error("application", f"one that was measured ({', '.join(applications)})", application)
        pinned_batch = PINNED_BATCHES.get(application)
        fixed_batch = pinned_batch if adapts_batch else batch
        measured = applications[application]
        max_workers = (
            1 if pinned_batch else max(1, (fixed_batch or measured.limits.maximum) // measured.limits.local_minimum)
        )
        workload = ProfiledWorkload(measured, fixed_batch, is_oracle=needs_oracle)
        yield row.line, TraceJob(name, submitted_at, workload, workers, 1, min(max_workers, MAX_MEASURED_WORKERS))
