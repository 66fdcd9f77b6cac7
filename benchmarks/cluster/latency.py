"""Divides a latency into parts, and says which of them are Kubernetes's and which are the measured system's.

This module defines the boundary between the two. A latency is divided by instants, and every part between two of them
belongs to one side:

  Kubernetes's  kubectl, until a watch shows the object it created; a StatefulSet, until a process of its pod runs; a
                pod, from its creation until its first Python runs, as that process records it (controllers,
                scheduler, kubelet, containers, and the 20 ms in which Python starts); a preemption, from the
                scheduler's mark on the pod until the signal arrives in the process; free capacity, until the pod
                that waited for it runs.
  the system's  everything else: for us the operator's reaction, the master's start, imports, journal and launches,
                the worker's start, imports, rendezvous and first step.

Instants of the API are those at which a watch reported them; those of processes are recorded by the processes. All of
them run on one machine, with one clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True)
class LatencyBreakdown:
    """The parts of a latency in order, each as (name, whether it is Kubernetes's, the instant at which it ends)."""

    began_at: float
    parts: list[tuple[str, bool, float]] = field(default_factory=list)

    def add_part(self, end_at: float | None, name: str, *, is_kubernetes: bool = False) -> None:
        """Adds a part. If `end_at` is None, because no process recorded it, the time counts for the next part."""
        if end_at is not None:
            self.parts.append((name, is_kubernetes, end_at))

    @property
    def total_s(self) -> float:
        return self.parts[-1][2] - self.began_at

    @property
    def own_s(self) -> float:
        return sum(seconds for name, seconds in self.durations_s().items() if name not in self._kubernetes)

    def durations_s(self) -> dict[str, float]:
        instants = [self.began_at, *(end_at for _, _, end_at in self.parts)]
        durations = [after - before for before, after in pairwise(instants)]
        return {name: seconds for (name, _, _), seconds in zip(self.parts, durations, strict=True)}

    @property
    def _kubernetes(self) -> set[str]:
        return {name for name, is_kubernetes, _ in self.parts if is_kubernetes}
