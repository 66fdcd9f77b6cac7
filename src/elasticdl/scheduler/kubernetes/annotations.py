"""The scheduler's annotations on an ElasticJob."""

from __future__ import annotations

PRIORITY = "elasticdl.org/priority"  # an integer, by its owner
REQUESTED_WORKERS = "elasticdl.org/requested-workers"  # the owner's wish, before the scheduler wrote its own there
SCHEDULING_REASON = "elasticdl.org/scheduling"  # why it has so many workers, or waits
SUSPENDED_BY = "elasticdl.org/suspended-by"  # ours is "scheduler"; else it was a person
SCHEDULER = "scheduler"
