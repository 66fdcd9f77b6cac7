"""Parses the options that declare the devices shared by local jobs."""

from __future__ import annotations

import os
import re

from elasticdl.errors import SpecError
from elasticdl.scheduler.snapshot import NodeInfo

LOCAL_NODE = "here"


def parse_nodes(budget: int | None, nodes: str | None) -> tuple[NodeInfo, ...]:
    """Returns one node with 320 devices for `--budget 320`, four with eight for `--nodes 4x8`; by default our cores."""
    if budget is not None and nodes is not None:
        raise SpecError("--budget and --nodes cannot be combined; leave out one of them")
    if nodes is None:
        return (NodeInfo(LOCAL_NODE, budget or available_cores()),)
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", nodes.strip())
    if match is None:
        raise SpecError(f"--nodes: expected NODESxDEVICES such as 4x8; received {nodes!r}")
    return tuple(NodeInfo(f"{LOCAL_NODE}-{index}", int(match[2])) for index in range(int(match[1])))


def available_cores() -> int:
    """Returns the number of cores this process may use."""
    return len(os.sched_getaffinity(0))
