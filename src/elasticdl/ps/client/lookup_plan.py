"""The plan of a lookup: the distinct ids of a batch, grouped by the ps that holds them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps import _native
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.wire.messages import Floats, Ids
from elasticdl.spec import PsId


class RoutingTable(NamedTuple):
    """A slot map as the native core expects it: the owner of each slot by its number among the members."""

    version: int
    members: tuple[PsId, ...]
    owners: NDArray[np.uint16]

    @classmethod
    def from_slot_map(cls, slot_map: SlotMap) -> RoutingTable:
        members = tuple(slot_map.members)
        numbers = {name: number for number, name in enumerate(members)}
        return cls(slot_map.version, members, np.array([numbers[owner] for owner in slot_map.owner], np.uint16))

    def plan(self, ids: Ids) -> LookupPlan:
        distinct, inverse, counts = _native.plan(ids, self.owners, len(self.members))
        return LookupPlan(distinct, inverse, tuple(counts.tolist()), self)


class LookupPlan(NamedTuple):
    """The distinct ids of a batch, grouped by the ps that holds them; `inverse` leads back to the batch."""

    ids: Ids
    inverse: NDArray[np.int32]
    counts: tuple[int, ...]  # for each member of the route
    routing_table: RoutingTable

    def sum_gradients(self, rows: Floats) -> Floats:
        """Sums the gradients of all occurrences of each id, in the order of `ids`."""
        sums = np.empty((len(self.ids), rows.shape[1]), np.float32)
        _native.segment_sum(rows, self.inverse, sums)
        return sums

    def slices_by_ps(self) -> Iterator[tuple[PsId, slice]]:
        """Yields each ps that owns some of `ids`, with their slice."""
        for name, ids, stop in zip(self.routing_table.members, self.counts, accumulate(self.counts), strict=True):
            if ids:
                yield name, slice(stop - ids, stop)
