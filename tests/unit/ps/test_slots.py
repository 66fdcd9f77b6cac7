"""The slot map: even, with the fewest moves, replicas never with their owner."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps.slots import SLOTS, Move, SlotMap, balance
from elasticdl.spec import PsId

MEMBERS = st.sets(st.integers(0, 40), min_size=1, max_size=20).map(
    lambda found: [PsId(f"ps-{n}") for n in sorted(found)]
)


def spread(slot_map: SlotMap) -> int:
    counts = Counter(slot_map.owner).values()
    return max(counts) - min(counts)


@given(MEMBERS, st.integers(1, 2))
def test_the_first_map_is_even_and_replicas_are_elsewhere(members: list[PsId], replicas: int) -> None:
    slot_map = SlotMap.first(members, replicas)

    assert set(slot_map.owner) == set(members)
    assert spread(slot_map) <= 1
    has_replicas = replicas == 2 and len(members) > 1
    assert all(bool(one) == has_replicas for one in slot_map.replica)
    assert all(owner != replica for owner, replica in zip(slot_map.owner, slot_map.replica, strict=True))
    if has_replicas:
        for member in members:  # if it dies, its slots do not all fall to one
            heirs = Counter(r for o, r in zip(slot_map.owner, slot_map.replica, strict=True) if o == member)
            assert len(heirs) == len(members) - 1


@given(st.lists(MEMBERS, min_size=2, max_size=6), st.integers(1, 2))
def test_balancing_is_even_and_moves_no_more_than_it_must(history: list[list[PsId]], replicas: int) -> None:
    slot_map = SlotMap.first(history[0], replicas)
    for members in history[1:]:
        moves = balance(slot_map, members)
        counts = Counter(slot_map.owner)
        after = slot_map.moved(moves)

        assert set(after.owner) <= set(members)
        assert spread(after) <= 1
        assert after.version == slot_map.version + 1
        assert all(slot_map.owner[move.slot] == move.source != move.target for move in moves)
        assert len({move.slot for move in moves}) == len(moves)
        share = SLOTS // len(members)
        must = sum(n for ps, n in counts.items() if ps not in members)
        must += sum(max(0, counts[ps] - share - 1) for ps in members)
        assert len(moves) >= must
        kept = sorted((counts[ps] for ps in members), reverse=True)
        more = SLOTS - share * len(members)
        assert len(moves) == SLOTS - sum(min(n, share + (rank < more)) for rank, n in enumerate(kept))
        slot_map = after


def test_a_slot_that_moves_onto_its_replica_trades_places() -> None:
    slot_map = SlotMap.first([PsId("a"), PsId("b")], 2)
    slot = slot_map.owner.index(PsId("a"))

    after = slot_map.moved([Move(slot, PsId("a"), PsId("b"))])

    assert (after.owner[slot], after.replica[slot]) == ("b", "a")


def test_nothing_moves_where_nothing_changed() -> None:
    members = [PsId("a"), PsId("b"), PsId("c")]
    assert balance(SlotMap.first(members, 1), members) == []
