"""The limit of open descriptors of this process."""

from __future__ import annotations

import resource
from contextlib import suppress

MAX_DESCRIPTORS = 1 << 16


def raise_descriptor_limit() -> None:
    """Raises the soft limit as far as the hard limit allows.

    The soft limit is inherited, perhaps from a process that was short of descriptors when it started this one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    new_limit = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < new_limit:
        with suppress(OSError, ValueError):  # a sandbox may forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))
