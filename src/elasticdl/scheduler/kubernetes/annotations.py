"""The scheduler's annotations on an ElasticJob."""

from __future__ import annotations

PRIORITY = "elasticdl.org/priority"  # an integer, set by the user
REQUESTED_WORKERS = "elasticdl.org/requested-workers"  # the user's replicas, before the scheduler changed them
SCHEDULING_REASON = "elasticdl.org/scheduling"  # why the job has this many workers, or waits
SUSPENDED_BY = "elasticdl.org/suspended-by"  # "scheduler", or the user if it is absent
SCHEDULER = "scheduler"
