"""How many descriptors this process may have open."""

from __future__ import annotations

import resource
from contextlib import suppress

MAX_DESCRIPTORS = 1 << 16


def raise_descriptor_limit() -> None:
    """All that the hard limit allows. The soft one is inherited, from a shell or from a process that was short of them
    when it started this one, and would stay so for as long as this one lives.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    new_limit = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < new_limit:
        with suppress(OSError, ValueError):  # a sandbox may forbid it: then it is as it was
            resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))
