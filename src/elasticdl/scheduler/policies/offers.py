"""Which sizes are worth considering for a job, and what it would do with each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.scheduler.interface import Floats
from elasticdl.scheduler.models import goodput
from elasticdl.scheduler.models.goodput import Goodput
from elasticdl.scheduler.snapshot import Job, Snapshot

FIRST = 4  # workers of a job nothing is known of
FINE = 8  # up to so many workers every number is considered, then steps of an eighth


@dataclass(frozen=True, slots=True)
class Offer:
    """Sizes of a job on one kind of device."""

    kind: str
    sizes: NDArray[np.int64]  # workers, the least first; at least one
    rates: Floats  # work a second
    is_here: bool  # whether its workers are on this kind now

    @property
    def one(self) -> float:
        """Work a second of one worker, about: of the least size, by its workers."""
        return max(float(self.rates[0] / self.sizes[0]), 1e-12)


def offers(snapshot: Snapshot, jobs: Sequence[Job]) -> list[list[Offer]]:
    """For each job one of each kind that it can run on. Rates of many jobs are computed at once."""
    kinds: dict[str, int] = {}
    total: dict[str, int] = {}
    for node in snapshot.nodes:
        kinds[node.kind] = max(kinds.get(node.kind, 0), node.devices)
        total[node.kind] = total.get(node.kind, 0) + node.devices
    asked: list[tuple[int, Job, str, NDArray[np.int64], NDArray[np.int64]]] = []
    for row, job in enumerate(jobs):
        for kind, per_node in sorted(kinds.items()):
            if job.kinds and kind not in job.kinds:
                continue
            each = max(per_node // job.devices, 1)
            sizes = _sizes(job, each, total[kind] // job.devices)
            if not sizes.size:
                continue
            nodes = -(-sizes // each)
            if job.is_running and len(job.workers) > 1:
                nodes = np.where(sizes == job.count, np.maximum(nodes, len(job.workers)), nodes)
            asked.append((row, job, kind, sizes, nodes))
    rates = _rates(asked)
    found: list[list[Offer]] = [[] for _ in jobs]
    here = {node.name: node.kind for node in snapshot.nodes}
    for (row, job, kind, sizes, _), rate in zip(asked, rates, strict=True):
        is_here = all(here.get(name) == kind for name in job.workers)
        found[row].append(Offer(kind, sizes, np.maximum(rate, 0.0), is_here))
    return [some or [Offer(next(iter(kinds), ""), np.array([job.least]), np.array([1.0]), False)] for job, some in
            zip(jobs, found, strict=True)]  # fmt: skip


def _sizes(job: Job, per_node: int, most: int) -> NDArray[np.int64]:
    seen = max((one.workers for one in job.speeds), default=0) if job.rates else job.most_workers
    most = min(job.maximum, most, max(2 * seen, FIRST, job.least))
    if job.sizes:
        return np.array([size for size in job.allowed(most)], np.int64)
    wanted = {job.least, *range(1, min(per_node, FINE) + 1), *range(per_node, most + 1, per_node)}
    size = FINE
    while size < min(per_node, most):
        size += max(1, size // 8)
        wanted.add(min(size, per_node))
    wanted |= {most, job.count} if most < per_node else {job.count}
    return np.array(sorted(one for one in wanted if job.minimum <= one <= most), np.int64)


def _rates(asked: Sequence[tuple[int, Job, str, NDArray[np.int64], NDArray[np.int64]]]) -> list[Floats]:
    rates: dict[int, Floats] = {}
    fitted: list[tuple[int, Goodput]] = []
    for place, (_, job, kind, sizes, nodes) in enumerate(asked):
        if isinstance(job.rates, Goodput):
            fitted.append((place, job.rates))
        else:
            rates[place] = job.rates.at(sizes, nodes, kind) if job.rates else sizes.astype(float)
    tables = goodput.tables(
        [model for _, model in fitted],
        [asked[place][3] for place, _ in fitted],
        [asked[place][4] for place, _ in fitted],
    )
    rates |= {place: table for (place, _), table in zip(fitted, tables, strict=True)}
    return [rates[place] for place in range(len(asked))]
