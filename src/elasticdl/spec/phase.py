"""The phases of a job, one word each, as statuses, results and `--json` write them."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """How a job stands. `is_over` tells the three phases that a job does not leave."""

    PENDING = (
        "pending"  # its master forms the first round, or waits for enough workers; on a cluster: has no master yet
    )
    WAITING = "waiting"  # in the queue of this machine's scheduler, without processes
    SUSPENDED = "suspended"  # on a cluster: it has given its pods back and may be told to go on
    INVALID = "invalid"  # on a cluster: the operator refused its ElasticJob
    STARTING = "starting"  # its processes start; no master has answered yet
    RUNNING = "running"
    STOPPING = "stopping"  # the running step ends, a checkpoint is written
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self in _OVER


_OVER = frozenset({Phase.STOPPED, Phase.SUCCEEDED, Phase.FAILED})
