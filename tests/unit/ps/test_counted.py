from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps import counted as counting
from elasticdl.ps.counted import Counted

BATCHES = st.lists(st.integers(1, 12))


def counted(batches: list[int]) -> Counted:
    made = Counted()
    for batch in batches:
        made.count(batch)
    return made


@given(BATCHES)
def test_every_batch_counts_once_in_any_order(batches: list[int]) -> None:
    made, applied = Counted(), set[int]()
    for batch in batches:
        assert made.count(batch) == (batch not in applied)
        applied.add(batch)

    assert applied == {*range(1, made.through + 1), *made.beyond}
    assert made.through + 1 not in made.beyond


@given(BATCHES, st.integers(1, 14))
def test_what_is_settled_is_remembered_in_one_number(batches: list[int], settled: int) -> None:
    made = counted(batches)
    made.settle(settled)

    assert {batch for batch in range(1, 20) if made.has(batch)} == {*batches, *range(1, settled)}
    assert not any(batch <= made.through + 1 for batch in made.beyond)


@given(BATCHES, BATCHES)
def test_merged_it_has_what_either_had(one: list[int], other: list[int]) -> None:
    made = counted(one)
    made.merge(counted(other))

    assert {batch for batch in range(1, 20) if made.has(batch)} == {*one, *other}


def test_it_travels_as_plain_values() -> None:
    made = {(3, 7): counted([1, 2, 5]), (0, 1): Counted()}
    assert counting.load(counting.dump(made)) == made
