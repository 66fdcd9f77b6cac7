"""The few ways in which a job may run that Sia chooses from: parts of a node by powers of two, then whole nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.scheduler.placement import place
from elasticdl.scheduler.room import Room
from elasticdl.scheduler.snapshot import Job, Snapshot
from elasticdl.scheduler.speed import Speeds, few_sizes


@dataclass(frozen=True)
class Configuration:
    workers: int
    kind: str | None  # None: over several
    devices: Mapping[str, int]  # by kind


class Configurations:
    """Of the jobs of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.speeds = Speeds(snapshot)
        self.devices, self.kinds = self.speeds.devices, self.speeds.kinds
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._empty = Room(snapshot.nodes)
        # The size of node that most devices of a kind are on, and how many such nodes there are.
        self._usual: dict[str, tuple[int, int]] = {}
        for kind in self.kinds:
            sizes = Counter(node.devices for node in snapshot.nodes if node.kind == kind)
            size = max(sizes, key=lambda size: (size * sizes[size], size))
            self._usual[kind] = size, sizes[size]

    def of(self, job: Job) -> list[Configuration]:
        if not job.demands:
            found = [
                Configuration(size, kind, {kind: size * job.devices})
                for kind in self.speeds.kinds_of(job)
                for size in self._sizes(job, kind)
            ]
            if found:
                return found
        sizes = few_sizes(job, self._empty.fits_in_all(job))
        return [self._over_kinds(job, size, laid) for size in sizes if (laid := place(self._empty, job, size))]

    def present(self, job: Job, able: list[Configuration]) -> Configuration | None:
        """That it runs in now; None: it does not run, or not as it could be placed."""
        if not job.workers or any(name not in self._nodes for name in job.workers):
            return None
        kinds = {self._nodes[name].kind for name in job.workers}
        for config in able:
            if config.workers == job.count and (config.kind is None or kinds == {config.kind}):
                return config
        return None

    def _sizes(self, job: Job, kind: str) -> list[int]:
        node, nodes = self._usual[kind]
        each = node // job.devices
        parts = [1 << power for power in range(each.bit_length())] if each else []
        most = self.devices[kind] // job.devices
        wanted = {*parts, *(each * number for number in range(1, nodes + 1)), *job.sizes, *job.allowed(job.maximum)[:1]}
        return sorted(size for size in wanted if 0 < size <= most and job.allows(size))

    def _over_kinds(self, job: Job, size: int, laid: Mapping[str, int]) -> Configuration:
        devices: Counter[str] = Counter()
        for name, count in laid.items():
            devices[self._nodes[name].kind] += count * job.devices
        return Configuration(size, None, dict(devices))
