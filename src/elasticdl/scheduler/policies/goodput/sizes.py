"""The sizes worth considering for a job on each kind of device, and its rate at each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.scheduler.interface import BatchConfig, Floats
from elasticdl.scheduler.models import goodput
from elasticdl.scheduler.models.goodput import AdaptiveBatchModel
from elasticdl.scheduler.snapshot import JobInfo, Snapshot

INITIAL_WORKERS = 4  # workers of a job nothing is known of
TRIAL_S = 30.0  # after which a job of which nothing is measured may have more
DENSE_UP_TO = 8  # up to so many workers every number is considered, then steps of an eighth


@dataclass(frozen=True, slots=True)
class SizeOptions:
    """Sizes of a job on one kind of device."""

    kind: str
    sizes: NDArray[np.int64]  # workers, the least first; at least one
    rates: Floats  # work a second
    is_current_kind: bool  # whether its workers are on this kind now
    batches: Floats | None = None  # rows (records of a worker in a pass, passes) for each size, where a model says

    @property
    def rate_per_worker(self) -> float:
        """Work a second of one worker, about: of the least size, by its workers."""
        return max(float(self.rates[0] / self.sizes[0]), 1e-12)

    def batch_config(self, job: JobInfo, count: int) -> BatchConfig | None:
        """Of so many workers, if that is one of the sizes."""
        place = int(np.searchsorted(self.sizes, count))
        is_known = place < len(self.sizes) and self.sizes[place] == count
        if not is_known or self.batches is None or not isinstance(job.rates, AdaptiveBatchModel):
            return None
        local, passes = self.batches[:, place].tolist()
        return job.rates.batch_config(int(local), int(passes), count)


def list_size_options(snapshot: Snapshot, jobs: Sequence[JobInfo]) -> list[list[SizeOptions]]:
    """For each job one of each kind that it can run on. Rates of many jobs are computed at once."""
    kinds: dict[str, int] = {}
    total: dict[str, int] = {}
    for node in snapshot.nodes:
        kinds[node.kind] = max(kinds.get(node.kind, 0), node.devices)
        total[node.kind] = total.get(node.kind, 0) + node.devices
    asked: list[tuple[int, JobInfo, str, NDArray[np.int64], NDArray[np.int64]]] = []
    for row, job in enumerate(jobs):
        for kind, per_node in sorted(kinds.items()):
            if job.kinds and kind not in job.kinds:
                continue
            each = max(per_node // job.devices, 1)
            sizes = _candidate_sizes(job, snapshot.now, each, total[kind] // job.devices)
            if not sizes.size:
                continue
            nodes = -(-sizes // each)
            if job.is_running and len(job.workers) > 1:
                nodes = np.where(sizes == job.worker_count, np.maximum(nodes, len(job.workers)), nodes)
            asked.append((row, job, kind, sizes, nodes))
    rates = _compute_rates(asked)
    found: list[list[SizeOptions]] = [[] for _ in jobs]
    here = {node.name: node.kind for node in snapshot.nodes}
    for (row, job, kind, sizes, _), table in zip(asked, rates, strict=True):
        is_here = all(here.get(name) == kind for name in job.workers)
        batches = table[1:] if len(table) > 1 else None
        found[row].append(SizeOptions(kind, sizes, np.maximum(table[0], 0.0), is_here, batches))
    kind = next(iter(kinds), "")
    return [
        options or [SizeOptions(kind, np.array([job.min_size]), np.array([1.0]), False)]
        for job, options in zip(jobs, found, strict=True)
    ]


def _candidate_sizes(job: JobInfo, now: float, per_node: int, most: int) -> NDArray[np.int64]:
    most = min(job.max_workers, most, max(_max_tried_workers(job, now), INITIAL_WORKERS, job.min_size))
    if job.sizes:
        return np.array([size for size in job.sizes_up_to(most)], np.int64)
    wanted = {job.min_size, *range(1, min(per_node, DENSE_UP_TO) + 1), *range(per_node, most + 1, per_node)}
    size = DENSE_UP_TO
    while size < min(per_node, most):
        size += max(1, size // 8)
        wanted.add(min(size, per_node))
    wanted |= {most, job.worker_count} if most < per_node else {job.worker_count}
    return np.array(sorted(one for one in wanted if job.min_workers <= one <= most), np.int64)


def _max_tried_workers(job: JobInfo, now: float) -> int:
    """Twice what it was measured with; where nothing is measured, twice what it has had for a while."""
    if job.rates is not None and job.speeds:
        return 2 * max(one.workers for one in job.speeds)
    is_new = job.changed_at is None or now - job.changed_at < TRIAL_S
    return job.max_workers_so_far * (1 if is_new else 2)


def _compute_rates(asked: Sequence[tuple[int, JobInfo, str, NDArray[np.int64], NDArray[np.int64]]]) -> list[Floats]:
    """For each a row of rates, and two rows of batches where a model chooses them."""
    rates: dict[int, Floats] = {}
    fitted: list[tuple[int, AdaptiveBatchModel]] = []
    for place, (_, job, kind, sizes, nodes) in enumerate(asked):
        if isinstance(job.rates, AdaptiveBatchModel):
            fitted.append((place, job.rates))
        else:
            rates[place] = (job.rates.work_per_s(sizes, nodes, kind) if job.rates else sizes.astype(float))[None]
    tables = goodput.goodput_tables(
        [model for _, model in fitted],
        [asked[place][3] for place, _ in fitted],
        [asked[place][4] for place, _ in fitted],
    )
    rates |= {place: table for (place, _), table in zip(fitted, tables, strict=True)}
    return [rates[place] for place in range(len(asked))]
