"""The slot map: even, with the fewest moves."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps.fleet import FleetView
from elasticdl.ps.slots import SLOTS, SlotMap, balance_slots
from elasticdl.spec import PsId
from tests.ps_requests import apply_moves

MEMBERS = st.sets(st.integers(0, 40), min_size=1, max_size=20).map(
    lambda found: [PsId(f"ps-{n}") for n in sorted(found)]
)


def spread(slot_map: SlotMap) -> int:
    counts = Counter(slot_map.owner).values()
    return max(counts) - min(counts)


@given(MEMBERS)
def test_the_first_map_is_even(members: list[PsId]) -> None:
    slot_map = SlotMap.initial(members)

    assert set(slot_map.owner) == set(members)
    assert spread(slot_map) <= 1
    assert sorted(slot for member in members for slot in slot_map.slots_of(member)) == list(range(SLOTS))


@given(st.lists(MEMBERS, min_size=2, max_size=6))
def test_balancing_is_even_and_moves_no_more_than_it_must(history: list[list[PsId]]) -> None:
    slot_map = SlotMap.initial(history[0])
    for members in history[1:]:
        moves = balance_slots(slot_map, members)
        counts = Counter(slot_map.owner)
        after = apply_moves(slot_map, moves)

        assert set(after.owner) <= set(members)
        assert spread(after) <= 1
        assert after.version == slot_map.version + 1
        assert all(slot_map.owner[move.slot] == move.source != move.target for move in moves)
        assert len({move.slot for move in moves}) == len(moves)
        share = SLOTS // len(members)
        least_moves = sum(n for ps, n in counts.items() if ps not in members)
        least_moves += sum(max(0, counts[ps] - share - 1) for ps in members)
        assert len(moves) >= least_moves
        counts_of_members = sorted((counts[ps] for ps in members), reverse=True)
        larger_shares = SLOTS - share * len(members)
        assert len(moves) == SLOTS - sum(
            min(n, share + (rank < larger_shares)) for rank, n in enumerate(counts_of_members)
        )
        slot_map = after


def test_a_fleet_travels_as_it_is() -> None:
    slot_map = SlotMap.initial([PsId("ps-0"), PsId("ps-2")])
    addresses = {PsId("ps-0"): "host:1", PsId("ps-2"): "host:2", PsId("ps-3"): "host:3"}
    fleet = FleetView(
        slot_map, addresses, {PsId("ps-0"): PsId("ps-2"), PsId("ps-1"): PsId("ps-0")}, frozenset({PsId("ps-1")})
    )

    assert FleetView.from_proto(fleet.to_proto()) == fleet


def test_nothing_moves_where_nothing_changed() -> None:
    members = [PsId("a"), PsId("b"), PsId("c")]
    assert balance_slots(SlotMap.initial(members), members) == []
