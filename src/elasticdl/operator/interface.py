"""Where a scheduler of the whole cluster will stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from elasticdl.spec.job import JobSpec


class Scheduler(Protocol):
    """Decides how many workers each job should have.

    The operator would ask whenever jobs or nodes change and write the answer to `spec.workers.wish`, exactly as
    `kubectl scale` does; masters follow it as they follow a person. There is none yet: wishes are people's.
    """

    def wishes(self, jobs: Sequence[JobSpec], free: Mapping[str, float]) -> Mapping[str, int]:
        """Workers for each job by name, given what the cluster has left, e.g. {"cpu": 12.0}."""
        ...
