"""The few configurations a job may run in (Sia): powers of two within a node, then whole nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.scheduler.models.estimates import SpeedEstimates, candidate_sizes
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import place_workers
from elasticdl.scheduler.snapshot import JobInfo, Snapshot


@dataclass(frozen=True)
class DeviceConfiguration:
    """A number of workers on one kind of device."""

    workers: int
    kind: str | None  # None: several kinds
    devices: Mapping[str, int]  # by kind


class ConfigurationTable:
    """The configurations of the jobs in one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.speeds = SpeedEstimates(snapshot)
        self.devices_by_kind, self.kinds = self.speeds.devices_by_kind, self.speeds.kinds
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._empty = FreeResources(snapshot.nodes)
        # By kind: the node size that has most of its devices, and the number of these nodes.
        self._usual_nodes: dict[str, tuple[int, int]] = {}
        for kind in self.kinds:
            sizes = Counter(node.devices for node in snapshot.nodes if node.kind == kind)
            size = max(sizes, key=lambda size: (size * sizes[size], size))
            self._usual_nodes[kind] = size, sizes[size]

    def configurations_of(self, job: JobInfo) -> list[DeviceConfiguration]:
        if not job.constraints:
            on_one_kind = [
                DeviceConfiguration(size, kind, {kind: size * job.devices})
                for kind in self.speeds.usable_kinds(job)
                for size in self._sizes(job, kind)
            ]
            if on_one_kind:
                return on_one_kind
        sizes = candidate_sizes(job, self._empty.total_workers_that_fit(job))
        return [
            self._over_kinds(job, size, workers) for size in sizes if (workers := place_workers(self._empty, job, size))
        ]

    def current_configuration(
        self, job: JobInfo, configurations: list[DeviceConfiguration]
    ) -> DeviceConfiguration | None:
        """Returns the configuration in which a job runs now; None: it does not run, or runs in no configuration."""
        if not job.workers or any(name not in self._nodes for name in job.workers):
            return None
        kinds = {self._nodes[name].kind for name in job.workers}
        for config in configurations:
            if config.workers == job.worker_count and (config.kind is None or kinds == {config.kind}):
                return config
        return None

    def _sizes(self, job: JobInfo, kind: str) -> list[int]:
        node_devices, node_count = self._usual_nodes[kind]
        per_node = node_devices // job.devices
        powers_of_two = [1 << power for power in range(per_node.bit_length())] if per_node else []
        max_workers = self.devices_by_kind[kind] // job.devices
        candidates = {
            *powers_of_two,
            *(per_node * number for number in range(1, node_count + 1)),
            *job.sizes,
            *job.sizes_up_to(job.max_workers)[:1],
        }
        return sorted(size for size in candidates if 0 < size <= max_workers and job.allows_size(size))

    def _over_kinds(self, job: JobInfo, size: int, workers: Mapping[str, int]) -> DeviceConfiguration:
        devices_by_kind: Counter[str] = Counter()
        for name, count in workers.items():
            devices_by_kind[self._nodes[name].kind] += count * job.devices
        return DeviceConfiguration(size, None, dict(devices_by_kind))
