"""Dense variables in blocks: nothing lost, and dealt evenly over any number of ps."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps import _native
from elasticdl.ps.client.dense import BLOCK_ELEMENTS, DenseLayout, make_block_ids
from elasticdl.ps.slots import SLOTS, SlotMap
from elasticdl.spec import PsId

SHAPES = st.lists(st.lists(st.integers(0, 40), max_size=3).map(tuple), min_size=1, max_size=6)


@given(SHAPES, st.integers(0, 99))
def test_what_is_packed_is_unpacked(shapes: list[tuple[int, ...]], seed: int) -> None:
    random = np.random.default_rng(seed)
    variables = {f"v{n}": random.normal(size=shape).astype(np.float32) for n, shape in enumerate(shapes)}
    layout = DenseLayout.from_variables(variables)

    rows = layout.pack(variables)

    assert rows.shape == (layout.block_count, BLOCK_ELEMENTS) and len(layout.block_ids) == layout.block_count
    unpacked = layout.unpack(rows)
    assert list(unpacked) == list(variables)
    for name, value in variables.items():
        np.testing.assert_array_equal(unpacked[name], value)


@pytest.mark.parametrize("blocks", [0, 1, 3, 140, 1024, 1025, 5000])
def test_ids_are_distinct_and_in_the_slots_they_should_be_in(blocks: int) -> None:
    ids = make_block_ids(blocks)

    assert len(set(ids.tolist())) == blocks
    assert _native.slots(ids).tolist() == [block % SLOTS for block in range(blocks)]


@pytest.mark.parametrize("blocks", [2, 7, 140, 3000])
@pytest.mark.parametrize("ps", [1, 2, 3, 5])
def test_blocks_are_dealt_evenly_over_the_ps(blocks: int, ps: int) -> None:
    owner = SlotMap.initial([PsId(f"ps-{n}") for n in range(ps)]).owner
    held = Counter(owner[slot] for slot in _native.slots(make_block_ids(blocks)))

    assert max(held.values()) - min((held[PsId(f"ps-{n}")] for n in range(ps)), default=0) <= -(-blocks // SLOTS)
