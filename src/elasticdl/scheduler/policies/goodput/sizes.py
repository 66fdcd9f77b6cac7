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

INITIAL_WORKERS = 4  # maximum for a job of which nothing is known
TRIAL_S = 30.0  # a job without measurements may have more workers after this time
DENSE_UP_TO = 8  # every size up to this is considered, larger ones in steps of an eighth


@dataclass(frozen=True, slots=True)
class SizeOptions:
    """The sizes of a job on one kind of device."""

    kind: str
    sizes: NDArray[np.int64]  # workers, ascending; at least one size
    rates: Floats  # work a second
    is_current_kind: bool  # whether the job's workers are on this kind
    batches: Floats | None = None  # rows (records of a worker in a pass, passes) by size, if a model chooses the batch

    @property
    def rate_per_worker(self) -> float:
        """The rate of one worker, estimated from the smallest size."""
        return max(float(self.rates[0] / self.sizes[0]), 1e-12)

    def batch_config(self, job: JobInfo, count: int) -> BatchConfig | None:
        """The batch for this many workers, if that is one of the sizes."""
        index = int(np.searchsorted(self.sizes, count))
        is_known = index < len(self.sizes) and self.sizes[index] == count
        if not is_known or self.batches is None or not isinstance(job.rates, AdaptiveBatchModel):
            return None
        local, passes = self.batches[:, index].tolist()
        return job.rates.batch_config(int(local), int(passes), count)


def list_size_options(snapshot: Snapshot, jobs: Sequence[JobInfo]) -> list[list[SizeOptions]]:
    """Returns, for each job, the options on every kind it can run on. Rates of many jobs are computed at once."""
    devices_per_node: dict[str, int] = {}
    devices_by_kind: dict[str, int] = {}
    for node in snapshot.nodes:
        devices_per_node[node.kind] = max(devices_per_node.get(node.kind, 0), node.devices)
        devices_by_kind[node.kind] = devices_by_kind.get(node.kind, 0) + node.devices
    requests: list[tuple[int, JobInfo, str, NDArray[np.int64], NDArray[np.int64]]] = []
    for row, job in enumerate(jobs):
        for kind, node_devices in sorted(devices_per_node.items()):
            if job.kinds and kind not in job.kinds:
                continue
            workers_per_node = max(node_devices // job.devices, 1)
            sizes = _candidate_sizes(job, snapshot.now, workers_per_node, devices_by_kind[kind] // job.devices)
            if not sizes.size:
                continue
            nodes = -(-sizes // workers_per_node)
            if job.is_running and len(job.workers) > 1:
                nodes = np.where(sizes == job.worker_count, np.maximum(nodes, len(job.workers)), nodes)
            requests.append((row, job, kind, sizes, nodes))
    rates = _compute_rates(requests)
    options_by_job: list[list[SizeOptions]] = [[] for _ in jobs]
    kind_by_node = {node.name: node.kind for node in snapshot.nodes}
    for (row, job, kind, sizes, _), table in zip(requests, rates, strict=True):
        is_current_kind = all(kind_by_node.get(name) == kind for name in job.workers)
        batches = table[1:] if len(table) > 1 else None
        options_by_job[row].append(SizeOptions(kind, sizes, np.maximum(table[0], 0.0), is_current_kind, batches))
    kind = next(iter(devices_per_node), "")
    return [
        options or [SizeOptions(kind, np.array([job.min_size]), np.array([1.0]), False)]
        for job, options in zip(jobs, options_by_job, strict=True)
    ]


def _candidate_sizes(job: JobInfo, now: float, per_node: int, limit: int) -> NDArray[np.int64]:
    limit = min(job.max_workers, limit, max(_max_tried_workers(job, now), INITIAL_WORKERS, job.min_size))
    if job.sizes:
        return np.array([size for size in job.sizes_up_to(limit)], np.int64)
    candidates = {job.min_size, *range(1, min(per_node, DENSE_UP_TO) + 1), *range(per_node, limit + 1, per_node)}
    size = DENSE_UP_TO
    while size < min(per_node, limit):
        size += max(1, size // 8)
        candidates.add(min(size, per_node))
    candidates |= {limit, job.worker_count} if limit < per_node else {job.worker_count}
    return np.array(sorted(candidate for candidate in candidates if job.min_workers <= candidate <= limit), np.int64)


def _max_tried_workers(job: JobInfo, now: float) -> int:
    """Twice the workers it was measured with; without measurements, twice what it has had for a while."""
    if job.rates is not None and job.speeds:
        return 2 * max(sample.workers for sample in job.speeds)
    is_new = job.changed_at is None or now - job.changed_at < TRIAL_S
    return job.max_workers_so_far * (1 if is_new else 2)


def _compute_rates(requests: Sequence[tuple[int, JobInfo, str, NDArray[np.int64], NDArray[np.int64]]]) -> list[Floats]:
    """Returns for each request a row of rates, and two rows of batches if a model chooses them."""
    rates: dict[int, Floats] = {}
    fitted: list[tuple[int, AdaptiveBatchModel]] = []
    for index, (_, job, kind, sizes, nodes) in enumerate(requests):
        if isinstance(job.rates, AdaptiveBatchModel):
            fitted.append((index, job.rates))
        else:
            rates[index] = (job.rates.work_per_s(sizes, nodes, kind) if job.rates else sizes.astype(float))[None]
    tables = goodput.goodput_tables(
        [model for _, model in fitted],
        [requests[index][3] for index, _ in fitted],
        [requests[index][4] for index, _ in fitted],
    )
    rates |= {index: table for (index, _), table in zip(fitted, tables, strict=True)}
    return [rates[index] for index in range(len(requests))]
