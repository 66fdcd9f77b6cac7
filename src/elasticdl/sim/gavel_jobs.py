"""Jobs of Gavel's measured types: what they do a second depends on the kind of device. Made up as in its evaluation.

Arrivals, sizes and durations are those of `synthetic`; a duration is on the fastest kind, which says how many steps it
has. A job may run with all sizes its type was measured with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from elasticdl.errors import DataError
from elasticdl.scheduler.interface import Batch, Floats
from elasticdl.sim.gavel_table import Table
from elasticdl.sim.interface import Knowledge, Placement
from elasticdl.sim.steady import Steady
from elasticdl.sim.synthetic import Arrivals, drawn
from elasticdl.sim.trace import TraceJob


@dataclass(frozen=True, slots=True)
class Measured:
    """Is a Rates: steps a second of one job type. Where a kind is not named, the first of the table."""

    table: Table
    job_type: str

    def at(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        counts, spread = np.broadcast_arrays(np.asarray(workers), np.asarray(nodes))
        found = [self.one(int(n), int(on), kind) for n, on in zip(counts.ravel(), spread.ravel(), strict=True)]
        return np.array(found, float).reshape(counts.shape)

    def one(self, workers: int, nodes: int, kind: str) -> float:
        """Sizes between those measured: as the next smaller one."""
        kind = kind or self.table.kinds[0]
        sizes = [size for size in self.table.sizes(self.job_type, kind) if size <= workers]
        return self.table.rate(self.job_type, sizes[-1], nodes, kind) if sizes else 0.0

    def batch(self, workers: int, nodes: int, kind: str = "") -> Batch | None:
        return None


class Typed(Steady):
    """Is a Body. Its work is steps."""

    def __init__(self, table: Table, job_type: str, steps: float, home: str) -> None:
        super().__init__(steps)
        self._rates = Measured(table, job_type)
        self._home = home  # the kind that `alone_s` is about

    @property
    def name(self) -> str:
        return self._rates.job_type

    def place(self, placement: Placement, kind: str, batch: Batch | None) -> None:
        self._rate = self._rates.one(sum(placement), len(placement), kind or self._home)

    def known(self) -> Knowledge:
        return Knowledge(rates=self._rates, work_left=self._left, work_done=self._whole - self._left)

    def alone_s(self, workers: float) -> float:
        """On the fastest kind; less than one worker: in turns."""
        rate = self._rates.one(max(int(workers), 1), 1, self._home) * min(workers, 1.0)
        return self._whole / rate


def jobs(table: Table, arrivals: Arrivals) -> Iterator[TraceJob]:
    fastest = max(table.kinds, key=lambda kind: (sum(table.alone[kind].values()), kind))
    by_size = {
        size: sorted(name for (name, devices), rate in table.alone[fastest].items() if devices == size and rate > 0)
        for size in {devices for _, devices in table.alone[fastest]}
    }
    for one in drawn(arrivals):
        if not (types := by_size.get(one.size)):
            raise DataError(f"no job type was measured with {one.size} devices of {fastest}")
        job_type = types[int(one.choice * len(types))]
        body = Typed(table, job_type, one.duration_s * table.rate(job_type, one.size, 1, fastest), fastest)
        sizes = table.sizes(job_type, fastest)
        able = [kind for kind in table.kinds if set(sizes) <= set(table.sizes(job_type, kind))]
        kinds = () if able == table.kinds else ("", *able)  # nodes of no kind are of the fastest
        yield TraceJob(
            f"job-{one.number:04}", one.at_s, body, one.size, min(sizes), max(sizes), sizes, kinds=kinds, may_share=True
        )
