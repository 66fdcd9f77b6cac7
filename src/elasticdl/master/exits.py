"""How a replica ended, as its launcher tells it."""

from __future__ import annotations

from typing import NamedTuple


class Exit(NamedTuple):
    """How a replica's process ended; code and signal None: nobody could know."""

    replica: str
    pid: int
    code: int | None
    signal: int | None
    cause: str = ""  # of a pod, see launcher/pod_life.py; of a process, whether the kernel's OOM killer ended it
    why: str = ""  # in the words of the cluster, or left behind by the process itself
    peak_bytes: int = 0  # the most memory it had; 0: not known
