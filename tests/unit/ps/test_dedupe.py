"""What a worker does to ids and gradients, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps import _native
from elasticdl.ps.slots import SLOTS

IDS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 9), max_size=200)


@given(IDS)
def test_distinct_ids_come_in_the_order_of_their_first_occurrence(ids: list[int]) -> None:
    distinct_ids, inverse = _native.unique(np.array(ids, np.int64))

    assert distinct_ids.tolist() == list(dict.fromkeys(ids))
    assert distinct_ids[inverse].tolist() == ids


@given(IDS, st.integers(1, 9))
def test_gradients_of_one_id_are_added_up(ids: list[int], columns: int) -> None:
    distinct_ids, inverse = _native.unique(np.array(ids, np.int64))
    rows = np.random.default_rng(0).standard_normal((len(ids), columns)).astype(np.float32)
    expected = np.zeros((len(distinct_ids), columns), np.float32)
    np.add.at(expected, inverse, rows)
    sums = np.full((len(distinct_ids), columns), 7, np.float32)
    _native.segment_sum(rows, inverse, sums)

    assert (sums == expected).all()


@given(IDS, st.integers(1, 7))
def test_a_batch_is_planned_by_the_owners_of_its_slots(ids: list[int], owners: int) -> None:
    owner = np.random.default_rng(owners).integers(owners, size=SLOTS).astype(np.uint16)
    distinct, inverse, counts = _native.plan(np.array(ids, np.int64), owner, owners)

    assert distinct[inverse].tolist() == ids
    assert sorted(distinct.tolist()) == sorted(set(ids))
    assert owner[_native.slots(distinct)].tolist() == np.repeat(np.arange(owners), counts).tolist()
    held = (owner == 0).astype(np.uint8)
    assert _native.foreign(distinct, held) == len(distinct) - counts[0]


@pytest.mark.parametrize("step", [1, 2, 64, 1024, 2**32])
def test_any_ids_spread_over_the_slots(step: int) -> None:
    counts = np.bincount(_native.slots(np.arange(100 * SLOTS, dtype=np.int64) * step), minlength=SLOTS)

    assert counts.min() > 50
    assert counts.max() < 160


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_row_that_is_not_finite_is_named(bad: float) -> None:
    values = np.zeros((5000, 3), np.float32)
    assert _native.not_finite(values) == -1
    values[4321, 1] = bad
    assert _native.not_finite(values) == 4321


def test_numbers_outside_of_the_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="inverse: expected numbers below 2"):
        _native.segment_sum(np.zeros((1, 2), np.float32), np.array([2], np.int32), np.zeros((2, 2), np.float32))
