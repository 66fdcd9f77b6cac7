"""Estimates of how fast jobs run and how much work is left, for policies, whether anything was measured or not."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import ArrayLike

from elasticdl.scheduler.interface import Floats
from elasticdl.scheduler.snapshot import JobInfo, Snapshot

DEFAULT_DURATION_S = 600.0
"""How long a job of unknown length that did nothing yet is assumed to take at its minimum size."""


class SpeedEstimates:
    """The speeds of the jobs in one snapshot. Without a rate model, each worker does one unit of work per second."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.devices_by_kind: Counter[str] = Counter()
        self.devices_per_node: dict[str, int] = {}  # of the largest node of each kind
        for node in snapshot.nodes:
            self.devices_by_kind[node.kind] += node.devices
            self.devices_per_node[node.kind] = max(self.devices_per_node.get(node.kind, 0), node.devices)
        self.kinds = sorted(self.devices_by_kind)

    def usable_kinds(self, job: JobInfo) -> list[str]:
        """Returns the kinds of the cluster that the job can run on."""
        return [kind for kind in self.kinds if not job.kinds or kind in job.kinds]

    def main_kind(self, job: JobInfo) -> str:
        """Returns the most common kind that the job can run on, for policies that consider only one."""
        return max(self.usable_kinds(job), key=lambda kind: (self.devices_by_kind[kind], kind), default="")

    def min_nodes(self, job: JobInfo, workers: ArrayLike, kind: str) -> Floats:
        """Returns the smallest number of nodes that can hold this many workers."""
        per_node = max(self.devices_per_node.get(kind, 0) // job.devices, 1)
        nodes: Floats = np.ceil(np.asarray(workers, float) / per_node)
        return nodes

    def rates(self, job: JobInfo, workers: ArrayLike, kind: str | None = None) -> Floats:
        """Returns the work per second on as few nodes as possible; always finite and at least 0."""
        kind = self.main_kind(job) if kind is None else kind
        worker_counts = np.asarray(workers, float)
        if job.rates is None:
            return worker_counts
        rates = job.rates.work_per_s(worker_counts, self.min_nodes(job, worker_counts, kind), kind)
        finite: Floats = np.maximum(np.nan_to_num(np.asarray(rates, float), nan=0.0, posinf=0.0, neginf=0.0), 0.0)
        return finite

    def rate(self, job: JobInfo, workers: int, kind: str | None = None) -> float:
        return float(self.rates(job, np.array([workers]), kind)[0])

    def work_left(self, job: JobInfo) -> float:
        """Returns the declared work, else as much as was done, at least `DEFAULT_DURATION_S` at the minimum size."""
        if job.work_left is not None:
            return max(job.work_left, 0.0)
        return max(job.work_done, self.rate(job, max(job.min_workers, 1)) * DEFAULT_DURATION_S)


def candidate_sizes(job: JobInfo, limit: int) -> tuple[int, ...]:
    """Returns the smallest and the greatest allowed size up to `limit`, and those next below powers of two."""
    largest = job.max_size_up_to(limit)
    if not largest:
        return ()
    sizes = {job.sizes_up_to(largest)[0], largest}
    sizes.update(job.max_size_up_to(1 << power) for power in range(largest.bit_length()))
    return tuple(sorted(sizes - {0}))
