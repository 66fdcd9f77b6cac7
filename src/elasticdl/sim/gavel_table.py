"""Gavel's throughputs: steps a second of a job type with so many devices of a kind, alone or beside another."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl.errors import DataError

SPREAD = "_unconsolidated"  # after a kind: measured on several nodes
Shape = tuple[str, int]
"""A job type, and its devices."""


@dataclass(frozen=True)
class Table:
    """`alone` by kind and shape; `pairs` by kind and two shapes: steps a second of the first beside the second."""

    alone: Mapping[str, Mapping[Shape, float]]
    pairs: Mapping[str, Mapping[tuple[Shape, Shape], float]]

    @property
    def kinds(self) -> list[str]:
        return sorted(kind for kind in self.alone if not kind.endswith(SPREAD))

    def sizes(self, job_type: str, kind: str) -> tuple[int, ...]:
        """Numbers of devices with which it was measured and runs at all."""
        return tuple(sorted(size for (name, size), rate in self.alone[kind].items() if name == job_type and rate > 0))

    def rate(self, job_type: str, size: int, nodes: int, kind: str) -> float:
        """0: it was not measured so, or does not run. Several nodes are as measured there, else as on one."""
        where = self.alone.get(kind + SPREAD, {}) if nodes > 1 else {}
        shape = job_type, size
        return where.get(shape) or self.alone.get(kind, {}).get(shape, 0.0)

    def slowdown(self, shape: Shape, beside: Shape, kind: str) -> float | None:
        """Its share of its speed alone, when both use the same devices; None: nobody measured these two."""
        alone = self.alone.get(kind, {}).get(shape, 0.0)
        together = self.pairs.get(kind, {}).get((shape, beside))
        return together / alone if together is not None and alone > 0 else None


def load(path: Path) -> Table:
    try:
        document = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as exc:
        raise DataError(f"{path}: expected a JSON document: {exc}") from exc
    if not isinstance(document, dict) or not document or not all(isinstance(one, dict) for one in document.values()):
        raise DataError(f"{path}: expected {{kind: {{job type: {{null: steps/s}}}}}}, received something else")
    alone: dict[str, dict[Shape, float]] = {}
    pairs: dict[str, dict[tuple[Shape, Shape], float]] = {}
    for kind, types in document.items():
        alone[kind], pairs[kind] = {}, {}
        for name, rates in types.items():
            where = f"{path}: {kind}: {name}"
            shape = _shape(where, name)
            if not isinstance(rates, dict) or "null" not in rates:
                raise DataError(f"{where}: expected a mapping with null for its speed alone, received {rates!r:.80}")
            for other, rate in rates.items():
                if other == "null":
                    alone[kind][shape] = _rate(where, rate)
                elif isinstance(rate, list) and len(rate) == 2:
                    pairs[kind][shape, _shape(where, other)] = _rate(f"{where}: beside {other}", rate[0])
                else:
                    raise DataError(f"{where}: beside {other}: expected two speeds, received {rate!r:.80}")
    return Table(alone, pairs)


def _shape(where: str, text: str) -> Shape:
    try:
        name, size = ast.literal_eval(text)
        if isinstance(name, str) and isinstance(size, int) and size >= 1:
            return name, size
    except (ValueError, SyntaxError, TypeError):
        pass
    raise DataError(f"{where}: expected ('job type', devices), received {text!r}")


def _rate(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise DataError(f"{where}: expected steps a second of 0 or more, received {value!r}")
    return float(value)
