"""Free devices and resources of the nodes while a plan is made, indexed by how much each node has left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, WorkersByNode

_EPSILON = 1e-9  # shares of devices are floats


class FreeResources:
    """Free devices and other resources by node. Made for one decision, and changed while it is made."""

    def __init__(self, nodes: Iterable[NodeInfo]) -> None:
        """All resources of the nodes are free."""
        self.nodes = {node.name: node for node in sorted(nodes, key=lambda node: (len(node.name), node.name))}
        self.devices = {name: float(node.devices) for name, node in self.nodes.items()}
        self.resources_by_node = {name: dict(node.resources) for name, node in self.nodes.items() if node.resources}
        self.racks = sorted({node.rack for node in self.nodes.values()})
        # By kind and number of whole free devices: node names, in the order in which they got there.
        self._names_by_free_devices: dict[str, list[dict[str, None]]] = {}
        for name, node in self.nodes.items():
            names_by_free = self._names_by_free_devices.setdefault(node.kind, [])
            while len(names_by_free) <= node.devices:
                names_by_free.append({})
            names_by_free[node.devices][name] = None

    @property
    def free_devices(self) -> int:
        """The number of whole free devices."""
        return sum(
            level * len(names)
            for names_by_free in self._names_by_free_devices.values()
            for level, names in enumerate(names_by_free)
        )

    def workers_that_fit(self, job: JobInfo, node: str, share: float = 1.0) -> int:
        """Returns how many more workers of the job fit on this node."""
        if not job.can_run_on(self.nodes[node]):
            return 0
        workers = int(self.devices[node] / (job.devices * share) + _EPSILON)
        for name, amount in job.request.items():
            if amount > 0:
                workers = min(workers, int(self.resources_by_node.get(node, {}).get(name, 0.0) / amount + _EPSILON))
        return max(workers, 0)

    def total_workers_that_fit(self, job: JobInfo) -> int:
        """Returns how many workers of the job fit on all nodes together."""
        if not job.request and job.devices == 1:
            kinds = job.kinds or self._names_by_free_devices
            return sum(
                level * len(names)
                for kind in kinds
                for level, names in enumerate(self._names_by_free_devices.get(kind, ()))
            )
        nodes = self._nodes_by_free_devices(job, job.devices)
        return sum(self.workers_that_fit(job, name) for name in nodes)

    def best_fit_nodes(self, job: JobInfo, workers: int) -> Iterator[str]:
        """Yields nodes that can hold this many workers, those with the fewest free devices first."""
        return (
            name
            for name in self._nodes_by_free_devices(job, workers * job.devices)
            if self.workers_that_fit(job, name) >= workers
        )

    def emptiest_nodes(self, job: JobInfo) -> Iterator[str]:
        """Yields nodes that can hold a worker, those that can hold the most first."""
        nodes = (
            name
            for name in self._nodes_by_free_devices(job, job.devices, tightest=False)
            if self.workers_that_fit(job, name)
        )
        return iter(sorted(nodes, key=lambda name: -self.workers_that_fit(job, name))) if job.request else nodes

    def allocate(self, job: JobInfo, workers: WorkersByNode, share: float = 1.0) -> None:
        self._apply(job, workers, -share)

    def release(self, job: JobInfo, workers: WorkersByNode, share: float = 1.0) -> None:
        self._apply(job, workers, share)

    def can_hold(self, job: JobInfo, workers: WorkersByNode, share: float = 1.0) -> bool:
        """Returns whether exactly these workers fit on these nodes."""
        return all(name in self.devices and self.workers_that_fit(job, name, share) >= n for name, n in workers.items())

    def remaining_nodes(self) -> tuple[NodeInfo, ...]:
        """Returns the nodes with only their free resources."""
        return tuple(
            NodeInfo(
                name,
                max(int(self.devices[name] + _EPSILON), 0),
                node.kind,
                node.rack,
                self.resources_by_node.get(name, {}),
            )
            for name, node in self.nodes.items()
        )

    def _nodes_by_free_devices(self, job: JobInfo, devices_by_node: int, *, tightest: bool = True) -> Iterator[str]:
        kinds = [
            kind for kind in (job.kinds or sorted(self._names_by_free_devices)) if kind in self._names_by_free_devices
        ]
        levels = range(devices_by_node, max((len(self._names_by_free_devices[kind]) for kind in kinds), default=0))
        for level in levels if tightest else reversed(levels):
            for kind in kinds:
                if level < len(self._names_by_free_devices[kind]):
                    yield from self._names_by_free_devices[kind][level]

    def _apply(self, job: JobInfo, workers: WorkersByNode, sign: float) -> None:
        for name, count in workers.items():
            names_by_free = self._names_by_free_devices[self.nodes[name].kind]
            del names_by_free[max(int(self.devices[name] + _EPSILON), 0)][name]
            self.devices[name] += sign * job.devices * count
            names_by_free[max(int(self.devices[name] + _EPSILON), 0)][name] = None
            for resource, amount in job.request.items():
                left = self.resources_by_node.setdefault(name, {})
                left[resource] = left.get(resource, 0.0) + (amount * count if sign > 0 else -amount * count)
