"""A time as a chain of instants, and whose each link is.

Where the line between Kubernetes and a system is drawn. A time is a chain of instants, each after the one before, and
every link belongs to one of the two:

  Kubernetes's  kubectl, until a watch shows the object it created; a StatefulSet, until a process of its pod runs; a
                pod, from its creation until its first Python runs, noted by that process itself (controllers,
                scheduler, kubelet, containers, and the 20 ms in which a Python begins); a preemption, from the
                scheduler's mark on the pod until the signal is heard inside; capacity that is free, until the pod
                that waited for it runs.
  the system's  all the rest: for us the operator's look, the master's start, imports, journal and launches, the
                worker's start, imports, rendezvous and first step.

Instants of the API are those at which a watch told of them, those of processes are their own; one machine, one clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True)
class Chain:
    """Instants from the beginning to the end. A link is (what happened meanwhile, whether Kubernetes did it)."""

    began: float
    links: list[tuple[str, bool, float]] = field(default_factory=list)

    def until(self, at: float | None, what: str, *, kubernetes: bool = False) -> None:
        """An instant that nobody noted leaves its time to the next link."""
        if at is not None:
            self.links.append((what, kubernetes, at))

    @property
    def total_s(self) -> float:
        return self.links[-1][2] - self.began

    @property
    def own_s(self) -> float:
        return sum(seconds for what, seconds in self.parts().items() if what not in self._kubernetes)

    def parts(self) -> dict[str, float]:
        instants = [self.began, *(at for _, _, at in self.links)]
        durations = [after - before for before, after in pairwise(instants)]
        return {what: seconds for (what, _, _), seconds in zip(self.links, durations, strict=True)}

    @property
    def _kubernetes(self) -> set[str]:
        return {what for what, is_kubernetes, _ in self.links if is_kubernetes}
