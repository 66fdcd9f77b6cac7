"""Marks against plain sets: a slot has a number, or it has not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps.slots import SLOTS
from elasticdl.ps.tables.applied_pushes import WINDOW, AppliedPushes, SlotMask

FEW = [0, 1, 7, 1023]
SENDERS = st.sampled_from([0, 3, 2**64 - 1])
NUMBERS = st.integers(1, 40) | st.integers(1, 400)
SOME = st.sets(st.sampled_from(FEW))
CALLS = st.lists(st.tuples(SENDERS, NUMBERS, SOME), max_size=40)


def flags(slots: set[int] | list[int]) -> SlotMask:
    mask = np.zeros(SLOTS, np.uint8)
    mask[list(slots)] = 1
    return mask


class Sets:
    """For each sender and slot all numbers that came; those too old for a window count as having come."""

    def __init__(self) -> None:
        self.came: dict[tuple[int, int], set[int]] = {}

    def mark(self, sender: int, number: int, slots: set[int]) -> None:
        for slot in slots:
            self.came.setdefault((sender, slot), set()).add(number)

    def having(self, sender: int, number: int, slots: set[int] | list[int]) -> list[int]:
        applied = []
        for slot in slots:
            came = self.came.get((sender, slot), set())
            if number in came or (came and number <= max(came) - WINDOW):
                applied.append(slot)
        return sorted(applied)


def having(marks: AppliedPushes, sender: int, number: int, slots: set[int] | list[int]) -> list[int]:
    applied = marks.find_applied(sender, number, flags(slots))
    return [] if applied is None else [int(slot) for slot in np.flatnonzero(applied)]


def apply_calls(calls: list[tuple[int, int, set[int]]]) -> tuple[AppliedPushes, Sets]:
    marks, sets = AppliedPushes(), Sets()
    for sender, number, slots in calls:
        assert having(marks, sender, number, slots) == sets.having(sender, number, slots)
        marks.record(sender, number, flags(slots))
        sets.mark(sender, number, slots)
    return marks, sets


def agree(marks: AppliedPushes, sets: Sets) -> None:
    highest = max((number for came in sets.came.values() for number in came), default=0)
    for sender in {sender for sender, _ in sets.came} | {5}:
        for number in range(1, highest + 2):
            assert having(marks, sender, number, FEW) == sets.having(sender, number, FEW)


@given(CALLS)
def test_a_slot_has_what_came_to_it(calls: list[tuple[int, int, set[int]]]) -> None:
    agree(*apply_calls(calls))


@given(CALLS, CALLS, SOME)
def test_marks_that_travel_join_what_is_there(
    ours: list[tuple[int, int, set[int]]], theirs: list[tuple[int, int, set[int]]], moving: set[int]
) -> None:
    (marks, sets), (other_marks, other_sets) = apply_calls(ours), apply_calls(theirs)
    marks.merge_packed(other_marks.pack(flags(moving)))
    for (sender, slot), came in other_sets.came.items():
        if slot in moving:
            sets.came.setdefault((sender, slot), set()).update(came)

    agree(marks, sets)


@given(CALLS, SOME)
def test_slots_that_are_forgotten_have_nothing(calls: list[tuple[int, int, set[int]]], gone: set[int]) -> None:
    marks, sets = apply_calls(calls)
    marks.forget(flags(gone))
    sets.came = {key: came for key, came in sets.came.items() if key[1] not in gone}

    agree(marks, sets)
    assert len(marks) == len({sender for sender, _ in sets.came})


@pytest.mark.parametrize(
    "broken", [[], [-1], [1], [1, 1024], [2, 3, 3], [1, 5, 9], [1, 5, 9, -3, 1], [1, 5, 9, 3, 1, 4], [2**62]]
)
def test_what_is_no_document_is_refused(broken: list[int]) -> None:
    with pytest.raises(ValueError, match="applied pushes: expected"):
        AppliedPushes().merge_packed(np.array(broken, np.int64))
