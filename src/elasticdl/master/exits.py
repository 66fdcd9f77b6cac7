"""How a replica ended, as its launcher tells it."""

from __future__ import annotations

from typing import NamedTuple


class Exit(NamedTuple):
    """How a replica's process ended; code and signal None: nobody could know."""

    replica: str
    pid: int
    code: int | None
    signal: int | None
    cause: str = ""  # of a pod, see launcher/pod_life.py
    why: str = ""  # in the words of the cluster
