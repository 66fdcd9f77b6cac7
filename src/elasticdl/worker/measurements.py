"""Numbers that a script measures of its batches, such as an accuracy, averaged over all workers.

They are gathered together with the gradients of the step, so either all workers know the averages or the step is
computed again. The sums are in the order of logical ranks: the averages do not depend on the number of workers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import torch

from elasticdl.collective.group import Group


class Measurements:
    """What was measured of the batches of one step: logical rank, name, records and value."""

    def __init__(self, entries: Iterable[tuple[int, str, int, float | torch.Tensor]] = ()) -> None:
        self._entries = list(entries)

    def add(self, rank: int, name: str, records: int, value: float | torch.Tensor) -> None:
        self._entries.append((rank, name, records, value.detach() if isinstance(value, torch.Tensor) else value))

    def encode(self) -> bytes:
        """JSON; nothing at all where nothing was measured."""
        if not self._entries:
            return b""
        entries = [[rank, name, records, float(value)] for rank, name, records, value in self._entries]
        return json.dumps(entries, separators=(",", ":")).encode()

    @staticmethod
    def decode(parts: Iterable[bytes]) -> Measurements:
        return Measurements(tuple(entry) for part in parts if part for entry in json.loads(part))

    def averages(self) -> dict[str, float]:
        """The mean of each name, weighted by records."""
        sums: dict[str, float] = {}
        weights: dict[str, int] = {}
        for _, name, records, value in sorted(self._entries, key=lambda entry: entry[0]):
            sums[name] = sums.get(name, 0.0) + float(value) * records
            weights[name] = weights.get(name, 0) + records
        return {name: total / weights[name] for name, total in sums.items()}


def gather_measurements(own: bytes, total_bytes: int, group: Group) -> Measurements:
    """The measurements of all members. All know from the tail of the step how many bytes there are."""
    if group.size == 1 or not total_bytes:
        return Measurements.decode([own])
    part = torch.zeros(total_bytes, dtype=torch.uint8)
    part[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8) if own else part[:0]
    everyone = torch.empty(group.size * total_bytes, dtype=torch.uint8)
    group.allgather(everyone, part)
    return Measurements.decode(bytes(row.tolist()).rstrip(b"\0") for row in everyone.view(group.size, total_bytes))
