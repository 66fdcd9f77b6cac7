"""Gavel's measured throughputs by job type and kind of device, and synthetic jobs of these types."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from elasticdl.errors import DataError
from elasticdl.scheduler.interface import BatchConfig, Floats, RateModel
from elasticdl.sim.interface import JobReport, WorkersPerNode
from elasticdl.sim.traces.recorded import ConstantRateWorkload
from elasticdl.sim.traces.synthetic import PoissonArrivals, sample_jobs
from elasticdl.sim.traces.trace import TraceJob

UNCONSOLIDATED_SUFFIX = "_unconsolidated"  # suffix of a kind that was measured on several nodes
Shape = tuple[str, int]
"""A job type and its number of devices."""


@dataclass(frozen=True)
class GavelThroughputs:
    """Steps per second of a job alone on its devices, by kind and shape. Measurements of pairs are not used."""

    alone: Mapping[str, Mapping[Shape, float]]

    @property
    def kinds(self) -> list[str]:
        return sorted(kind for kind in self.alone if not kind.endswith(UNCONSOLIDATED_SUFFIX))

    def sizes(self, job_type: str, kind: str) -> tuple[int, ...]:
        """Returns the numbers of devices with which the job type was measured and runs."""
        return tuple(sorted(size for (name, size), rate in self.alone[kind].items() if name == job_type and rate > 0))

    def rate(self, job_type: str, size: int, nodes: int, kind: str) -> float:
        """Returns 0 if it was not measured or does not run. Several nodes count as one if they were not measured."""
        on_several_nodes = self.alone.get(kind + UNCONSOLIDATED_SUFFIX, {}) if nodes > 1 else {}
        shape = job_type, size
        return on_several_nodes.get(shape) or self.alone.get(kind, {}).get(shape, 0.0)


def load_throughputs(path: Path) -> GavelThroughputs:
    try:
        document = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as exc:
        raise DataError(f"{path}: expected a JSON document: {exc}") from exc
    if (
        not isinstance(document, dict)
        or not document
        or not all(isinstance(rates, dict) for rates in document.values())
    ):
        raise DataError(f"{path}: expected {{kind: {{job type: {{null: steps/s}}}}}}, received something else")
    alone: dict[str, dict[Shape, float]] = {}
    for kind, types in document.items():
        alone[kind] = {}
        for name, rates in types.items():
            where = f"{path}: {kind}: {name}"
            if not isinstance(rates, dict) or "null" not in rates:
                raise DataError(f"{where}: expected a mapping with null for its speed alone, received {rates!r:.80}")
            alone[kind][_parse_shape(where, name)] = _parse_rate(where, rates["null"])
    return GavelThroughputs(alone)


def _parse_shape(where: str, text: str) -> Shape:
    try:
        name, size = ast.literal_eval(text)
        if isinstance(name, str) and isinstance(size, int) and size >= 1:
            return name, size
    except (ValueError, SyntaxError, TypeError):
        pass
    raise DataError(f"{where}: expected ('job type', devices), received {text!r}")


def _parse_rate(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise DataError(f"{where}: expected steps a second of 0 or more, received {value!r}")
    return float(value)


@dataclass(frozen=True, slots=True)
class GavelRateModel(RateModel):
    """Measured steps per second of one job type. Without a kind, the first one of the table counts."""

    table: GavelThroughputs
    job_type: str

    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        counts, spread = np.broadcast_arrays(np.asarray(workers), np.asarray(nodes))
        rates = [
            self.rate(int(count), int(node_count), kind)
            for count, node_count in zip(counts.ravel(), spread.ravel(), strict=True)
        ]
        return np.array(rates, float).reshape(counts.shape)

    def rate(self, workers: int, nodes: int, kind: str) -> float:
        """A size that was not measured counts as the next smaller one."""
        kind = kind or self.table.kinds[0]
        sizes = [size for size in self.table.sizes(self.job_type, kind) if size <= workers]
        return self.table.rate(self.job_type, sizes[-1], nodes, kind) if sizes else 0.0

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        return None


class GavelWorkload(ConstantRateWorkload):
    """A job of one of Gavel's types; its work is steps."""

    def __init__(self, table: GavelThroughputs, job_type: str, steps: float, fastest_kind: str) -> None:
        super().__init__(steps)
        self._rate_model = GavelRateModel(table, job_type)
        self._fastest_kind = fastest_kind  # the kind for `isolated_duration_s`

    @property
    def name(self) -> str:
        return self._rate_model.job_type

    def place(self, placement: WorkersPerNode, kind: str, batch: BatchConfig | None) -> None:
        self._rate = self._rate_model.rate(sum(placement), len(placement), kind or self._fastest_kind)

    def report(self) -> JobReport:
        return JobReport(rates=self._rate_model, work_left=self._remaining, work_done=self._total - self._remaining)

    def isolated_duration_s(self, workers: float) -> float:
        """The duration on the fastest kind; with less than one worker the job takes turns."""
        rate = self._rate_model.rate(max(int(workers), 1), 1, self._fastest_kind) * min(workers, 1.0)
        return self._total / rate


def synthesize_gavel_jobs(table: GavelThroughputs, arrivals: PoissonArrivals) -> Iterator[TraceJob]:
    """Yields jobs as in Gavel's evaluation. A sampled duration on the fastest kind determines the steps of a job."""
    fastest = max(table.kinds, key=lambda kind: (sum(table.alone[kind].values()), kind))
    by_size = {
        size: sorted(name for (name, devices), rate in table.alone[fastest].items() if devices == size and rate > 0)
        for size in {devices for _, devices in table.alone[fastest]}
    }
    for sample in sample_jobs(arrivals):
        if not (types := by_size.get(sample.size)):
            raise DataError(f"no job type was measured with {sample.size} devices of {fastest}")
        job_type = types[int(sample.random_choice * len(types))]
        workload = GavelWorkload(
            table, job_type, sample.duration_s * table.rate(job_type, sample.size, 1, fastest), fastest
        )
        sizes = table.sizes(job_type, fastest)
        usable_kinds = [kind for kind in table.kinds if set(sizes) <= set(table.sizes(job_type, kind))]
        kinds = () if usable_kinds == table.kinds else ("", *usable_kinds)  # nodes without a kind count as the fastest
        yield TraceJob(
            f"job-{sample.number:04}",
            sample.submitted_s,
            workload,
            sample.size,
            min(sizes),
            max(sizes),
            sizes,
            kinds=kinds,
            may_share=True,
        )
