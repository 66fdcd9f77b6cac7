"""A rate model as a table of worker counts and rates, so that it can be stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from elasticdl.scheduler.interface import BatchConfig, Floats, RateModel

DENSE_UP_TO = 32  # of larger sizes only powers of two are stored


@dataclass(frozen=True)
class RateTable(RateModel):
    """A rate model: by kind of device, pairs of workers and rate on as few nodes as possible.

    Rates between two sizes are interpolated, and constant beyond the greatest. An unknown kind has the first one's
    rates.
    """

    by_kind: Mapping[str, tuple[tuple[int, float], ...]]

    def __post_init__(self) -> None:
        if not self.by_kind or not all(self.by_kind.values()):
            raise ValueError("expected {kind: [[workers, rate], …]}, received nothing")
        for pairs in self.by_kind.values():
            if any(size < 1 or not 0 <= rate < float("inf") for size, rate in pairs):
                raise ValueError(f"expected 1 worker or more and a rate of 0 or more, received {list(pairs)}")
            if any(before[0] >= after[0] for before, after in pairwise(pairs)):
                raise ValueError(f"expected sizes in order, received {[size for size, _ in pairs]}")

    @classmethod
    def from_model(
        cls, model: RateModel, max_workers: int, devices_per_node: Mapping[str, int], devices_per_worker: int
    ) -> RateTable:
        """`devices_per_node` is by kind."""
        sizes = sorted(
            {
                *range(1, min(max_workers, DENSE_UP_TO) + 1),
                *(1 << power for power in range(max_workers.bit_length())),
                max_workers,
            }
        )
        counts = np.array([size for size in sizes if size <= max_workers])
        by_kind = {}
        for kind, node_devices in devices_per_node.items():
            nodes = np.ceil(counts / max(node_devices // devices_per_worker, 1))
            values = np.nan_to_num(model.work_per_s(counts, nodes, kind), nan=0.0, posinf=0.0, neginf=0.0)
            by_kind[kind] = tuple((int(size), float(rate)) for size, rate in zip(counts, values, strict=True))
        return cls(by_kind)

    @classmethod
    def from_document(cls, document: Any) -> RateTable:
        """Raises ValueError for a document that is not a table."""
        if not isinstance(document, dict):
            raise ValueError(f"expected {{kind: [[workers, rate], …]}}, received {type(document).__name__}")
        try:
            by_kind = {str(kind): tuple((int(n), float(rate)) for n, rate in pairs) for kind, pairs in document.items()}
        except TypeError as exc:
            raise ValueError(f"expected {{kind: [[workers, rate], …]}}: {exc}") from None
        return cls(by_kind)

    def to_document(self) -> dict[str, list[list[float]]]:
        return {kind: [[size, rate] for size, rate in pairs] for kind, pairs in self.by_kind.items()}

    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        pairs = self.by_kind.get(kind) or next(iter(self.by_kind.values()))
        sizes, rates = zip(*((0, 0.0), *pairs), strict=True)
        interpolated: Floats = np.interp(np.asarray(workers, float), sizes, rates)
        return interpolated

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        return None
