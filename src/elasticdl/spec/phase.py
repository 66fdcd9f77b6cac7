"""The phases of a job, as in statuses, results and `--json`."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """The phase of a job. `is_over` is true for the three final phases."""

    PENDING = "pending"  # it forms the first round, or waits for workers; on a cluster it may have no master yet
    WAITING = "waiting"  # in the queue of this machine's scheduler, without processes
    SUSPENDED = "suspended"  # on a cluster: it has no pods, and can be resumed
    INVALID = "invalid"  # on a cluster: the operator refused its ElasticJob
    STARTING = "starting"  # its processes start; no master has answered yet
    RUNNING = "running"
    STOPPING = "stopping"  # it finishes the current step and writes a checkpoint
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self in _OVER


_OVER = frozenset({Phase.STOPPED, Phase.SUCCEEDED, Phase.FAILED})
