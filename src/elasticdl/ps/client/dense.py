"""Dense variables on the ps: one long vector of them all, cut into blocks, each a row of a table. Pure.

The ids of the blocks are chosen by the slots they fall into: block b goes into slot b, b + 1024 follows into the same.
So the blocks are dealt over all ps as evenly as the slots are, however few they are, and move with the slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps import _native
from elasticdl.ps.slots import SLOTS
from elasticdl.ps.tables.initializer import Initializer
from elasticdl.ps.tables.optimizer import Optimizer
from elasticdl.ps.tables.table import TableSpec

DENSE_TABLE = "dense"
BLOCK_ELEMENTS = 1024  # elements: 4 KiB, small enough to be dealt evenly, large enough that an id costs nothing

Floats = NDArray[np.float32]


class DenseLayout(NamedTuple):
    """Where each variable lies in the blocks."""

    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def from_variables(cls, variables: Mapping[str, Floats]) -> DenseLayout:
        return cls({name: value.shape for name, value in variables.items()})

    @property
    def elements(self) -> int:
        return sum(self._sizes())

    @property
    def block_count(self) -> int:
        return -(-self.elements // BLOCK_ELEMENTS)

    @property
    def block_ids(self) -> NDArray[np.int64]:
        """The id of each block."""
        return make_block_ids(self.block_count)

    def pack(self, variables: Mapping[str, Floats]) -> Floats:
        """The blocks of these values, as rows; what is left of the last one is zero."""
        rows = np.zeros((self.block_count, BLOCK_ELEMENTS), np.float32)
        flat = rows.reshape(-1)
        for (name, shape), (start, stop) in zip(self.shapes.items(), self._places(), strict=True):
            flat[start:stop].reshape(shape)[...] = variables[name]
        return rows

    def unpack(self, rows: Floats) -> dict[str, Floats]:
        """The variables in these blocks: views, no copies."""
        flat = rows.reshape(-1)
        return {
            name: flat[start:stop].reshape(shape)
            for (name, shape), (start, stop) in zip(self.shapes.items(), self._places(), strict=True)
        }

    def table_spec(self, optimizer: Optimizer) -> TableSpec:
        return TableSpec(
            name=DENSE_TABLE, columns=BLOCK_ELEMENTS, initializer=Initializer(kind="zeros"), optimizer=optimizer
        )

    def _sizes(self) -> list[int]:
        return [int(np.prod(shape, dtype=np.int64)) for shape in self.shapes.values()]

    def _places(self) -> list[tuple[int, int]]:
        return list(pairwise(accumulate(self._sizes(), initial=0)))


def make_block_ids(blocks: int) -> NDArray[np.int64]:
    """So many ids, the b-th of which is in slot b modulo the number of slots; always the same ones."""
    ids = np.full(blocks, -1, np.int64)
    rounds = -(-blocks // SLOTS)
    seen = np.zeros(SLOTS, np.int64)  # ids found for each slot so far
    start, size = 0, SLOTS * 16 * max(1, rounds)
    while (ids < 0).any():
        candidates = np.arange(start, start + size, dtype=np.int64)
        slots = _native.slots(candidates).astype(np.int64)
        order = np.argsort(slots, kind="stable")
        slots, candidates = slots[order], candidates[order]
        firsts = np.searchsorted(slots, np.arange(SLOTS))
        rank = np.arange(len(slots)) - firsts[slots] + seen[slots]  # the how-manieth of its slot
        block = rank * SLOTS + slots
        fits = block < blocks
        ids[block[fits]] = candidates[fits]
        seen += np.bincount(slots, minlength=SLOTS)
        start += size
    return ids
