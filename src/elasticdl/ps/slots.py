"""Which ps holds which slot: the slot map, and the moves that balance it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from elasticdl.spec.ids import PsId

SLOTS = 1024  # as in native/src/hash.h


def ps_number(ps: PsId) -> int:
    """The number of a ps in messages: 3 for "ps-3"."""
    return int(ps.rpartition("-")[2])


class SlotMove(NamedTuple):
    slot: int
    source: PsId  # its present owner, which may be lost
    target: PsId


class SlotMap(NamedTuple):
    """`owner[s]` owns slot s."""

    version: int
    owner: tuple[PsId, ...]

    @classmethod
    def initial(cls, members: Sequence[PsId]) -> SlotMap:
        """Assigns the slots to the members in turn."""
        assert members, "a slot map needs a ps"
        return cls(1, tuple(members[slot % len(members)] for slot in range(SLOTS)))

    @property
    def members(self) -> list[PsId]:
        """All owners, in the order of their first slots."""
        return list(dict.fromkeys(self.owner))

    def slots_of(self, ps: PsId) -> list[int]:
        return [slot for slot, owner in enumerate(self.owner) if owner == ps]

    def to_document(self) -> dict[str, Any]:
        """Converts it to plain values, for JSON."""
        return {"version": self.version, "owner": self.owner}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SlotMap:
        """Raises KeyError, TypeError or ValueError if the document is not a slot map."""
        owner = tuple(document["owner"])
        if len(owner) != SLOTS or not all(isinstance(name, str) for name in owner):
            raise ValueError(f"expected an owner for each of {SLOTS} slots")
        return cls(int(document["version"]), owner)


def balance_slots(slot_map: SlotMap, members: Sequence[PsId]) -> list[SlotMove]:
    """Finds the fewest moves after which `members` own all slots, with numbers that differ by at most one."""
    assert members, "slots need a ps"
    held: dict[PsId, list[int]] = {member: [] for member in members}
    to_move: list[tuple[int, PsId]] = []
    for slot, owner in enumerate(slot_map.owner):
        if owner in held:
            held[owner].append(slot)
        else:
            to_move.append((slot, owner))
    # The members with the most slots may keep one more than the others: this moves the fewest.
    ranked = sorted(members, key=lambda member: -len(held[member]))
    share, remainder = divmod(SLOTS, len(members))
    quota = {member: share + (rank < remainder) for rank, member in enumerate(ranked)}
    for member in members:
        to_move += [(slot, member) for slot in held[member][quota[member] :]]
    targets = iter(member for member in members for _ in range(quota[member] - len(held[member][: quota[member]])))
    return [SlotMove(slot, source, next(targets)) for slot, source in to_move]
