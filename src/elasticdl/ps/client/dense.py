"""Dense variables on the ps: one long vector of all of them, split into blocks, each a row of a table. Pure.

The ids of the blocks are chosen by the slots they fall into: block b is in slot b, block b + 1024 in the same. So even
a few blocks are distributed over the ps as evenly as the slots, and they move with the slots.
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
BLOCK_ELEMENTS = 1024  # 4 KiB: small enough for an even distribution, large enough to make the cost of ids negligible

Floats = NDArray[np.float32]


class DenseLayout(NamedTuple):
    """The position of each variable in the blocks."""

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
        """Packs values into blocks, the rows of the table; the last block is padded with zeros."""
        rows = np.zeros((self.block_count, BLOCK_ELEMENTS), np.float32)
        flat = rows.reshape(-1)
        for (name, shape), (start, stop) in zip(self.shapes.items(), self._ranges(), strict=True):
            flat[start:stop].reshape(shape)[...] = variables[name]
        return rows

    def unpack(self, rows: Floats) -> dict[str, Floats]:
        """The variables in these blocks, as views."""
        flat = rows.reshape(-1)
        return {
            name: flat[start:stop].reshape(shape)
            for (name, shape), (start, stop) in zip(self.shapes.items(), self._ranges(), strict=True)
        }

    def table_spec(self, optimizer: Optimizer) -> TableSpec:
        return TableSpec(
            name=DENSE_TABLE, columns=BLOCK_ELEMENTS, initializer=Initializer(kind="zeros"), optimizer=optimizer
        )

    def _sizes(self) -> list[int]:
        return [int(np.prod(shape, dtype=np.int64)) for shape in self.shapes.values()]

    def _ranges(self) -> list[tuple[int, int]]:
        return list(pairwise(accumulate(self._sizes(), initial=0)))


def make_block_ids(blocks: int) -> NDArray[np.int64]:
    """Finds an id for each block: the b-th is in slot b modulo the number of slots. Always the same ids."""
    ids = np.full(blocks, -1, np.int64)
    rounds = -(-blocks // SLOTS)
    ids_per_slot = np.zeros(SLOTS, np.int64)  # so far
    start, size = 0, SLOTS * 16 * max(1, rounds)
    while (ids < 0).any():
        candidates = np.arange(start, start + size, dtype=np.int64)
        slots = _native.slots(candidates).astype(np.int64)
        order = np.argsort(slots, kind="stable")
        slots, candidates = slots[order], candidates[order]
        firsts = np.searchsorted(slots, np.arange(SLOTS))
        rank = np.arange(len(slots)) - firsts[slots] + ids_per_slot[slots]  # among the ids of its slot
        block = rank * SLOTS + slots
        fits = block < blocks
        ids[block[fits]] = candidates[fits]
        ids_per_slot += np.bincount(slots, minlength=SLOTS)
        start += size
    return ids
