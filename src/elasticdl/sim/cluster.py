"""Parses simulated clusters from command-line options: nodes, devices, kinds, racks, failures and stragglers."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from elasticdl.errors import SpecError
from elasticdl.scheduler.snapshot import NodeInfo
from elasticdl.sim.engine import NodeOutage


def parse_nodes(count: int, devices: int, kinds: str = "", racks: int = 0) -> tuple[NodeInfo, ...]:
    """Returns the nodes of a cluster, named node-00, node-01, …, with enough digits that they sort by number.

    `kinds` is KIND:NODES or KIND:NODESxDEVICES, separated by commas; then `count` is 0 or their sum. Racks are filled
    one after another.
    """
    parts = [_parse_kind(text, devices) for text in kinds.split(",")] if kinds else [("", count, devices)]
    total = sum(part[1] for part in parts)
    if count and count != total:
        raise SpecError(f"--kinds {kinds}: has {total} nodes, --nodes says {count}")
    if total < 1 or any(node_devices < 1 for _, _, node_devices in parts):
        raise SpecError(f"--nodes: expected 1 node with 1 device or more, received {total} with {devices}")
    if racks < 0 or racks > total:
        raise SpecError(f"--racks: expected 1 to {total}, received {racks}")
    digits = max(len(str(total - 1)), 2)
    kinds_and_devices = [(kind, node_devices) for kind, node_count, node_devices in parts for _ in range(node_count)]
    nodes = [
        NodeInfo(f"node-{index:0{digits}}", node_devices, kind)
        for index, (kind, node_devices) in enumerate(kinds_and_devices)
    ]
    if racks:
        nodes = [replace(node, rack=f"rack-{index * racks // total}") for index, node in enumerate(nodes)]
    return tuple(nodes)


def _parse_kind(text: str, devices: int) -> tuple[str, int, int]:
    kind, _, size = text.partition(":")
    number, _, each = size.partition("x")
    if not kind or not number.isdigit() or (each and not each.isdigit()):
        raise SpecError(f"--kinds: expected KIND:NODES or KIND:NODESxDEVICES, received {text!r}")
    return kind, int(number), int(each) if each else devices


@dataclass(frozen=True)
class NodeFailures:
    """An endless series of outages: nodes fail after exponential times with this mean, for `repair_s` seconds.

    The same seed gives the same outages.
    """

    names: tuple[str, ...]
    mtbf_s: float
    repair_s: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.mtbf_s < math.inf or not 0 < self.repair_s < math.inf:
            raise SpecError(
                f"--failures: expected times above 0 s, received MTBF {self.mtbf_s:g}, repair {self.repair_s:g}"
            )

    def __iter__(self) -> Iterator[NodeOutage]:
        rng = np.random.default_rng(self.seed)
        next_failures = [(float(rng.exponential(self.mtbf_s)), name) for name in self.names]
        heapq.heapify(next_failures)
        while True:
            failed_at, name = next_failures[0]
            yield NodeOutage(name, failed_at, failed_at + self.repair_s)
            heapq.heapreplace(next_failures, (failed_at + self.repair_s + float(rng.exponential(self.mtbf_s)), name))


def parse_failures(text: str, names: tuple[str, ...], seed: int) -> NodeFailures:
    """Parses `MTBF=SECONDS,repair=SECONDS`."""
    values = parse_pairs("--failures", text)
    if set(values) != {"mtbf", "repair"}:
        raise SpecError(f"--failures: expected MTBF=SECONDS,repair=SECONDS, received {text!r}")
    return NodeFailures(names, values["mtbf"], values["repair"], seed)


def parse_stragglers(text: str, names: tuple[str, ...]) -> dict[str, float]:
    """Parses `NODE=FACTOR,…`; with 2.0 a node takes twice as long."""
    slowness = parse_pairs("--stragglers", text)
    for name, factor in slowness.items():
        if name not in names:
            raise SpecError(f"--stragglers: expected a node, {names[0]} to {names[-1]}, received {name!r}")
        if not 1 <= factor < math.inf:
            raise SpecError(f"--stragglers: {name}: expected a factor of 1 or more, received {factor:g}")
    return slowness


def parse_pairs(flag: str, text: str) -> dict[str, float]:
    """Parses `KEY=NUMBER,…`; keys are converted to lower case."""
    values = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        try:
            values[key.strip().lower()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise SpecError(f"{flag}: expected KEY=NUMBER, received {part!r}")
    return values
