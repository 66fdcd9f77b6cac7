"""What an ElasticJob carries of scheduling."""

from __future__ import annotations

PRIORITY = "elasticdl.org/priority"  # an integer, by its owner
REQUESTED = "elasticdl.org/requested-workers"  # the owner's wish, before the scheduler wrote its own there
REASON = "elasticdl.org/scheduling"  # why it has so many workers, or waits
SUSPENDED = "elasticdl.org/suspended-by"  # ours is "scheduler"; else it was a person
US = "scheduler"
