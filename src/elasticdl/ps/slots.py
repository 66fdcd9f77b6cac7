"""Which ps holds which slot: the slot map, and the moves that balance it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from elasticdl.spec.ids import PsId

SLOTS = 1024  # as in native/src/hash.h


def ps_number(ps: PsId) -> int:
    """3 for "ps-3": how the wire names it."""
    return int(ps.rpartition("-")[2])


class SlotMove(NamedTuple):
    slot: int
    source: PsId  # the one that holds it now, or held it
    target: PsId


class SlotMap(NamedTuple):
    """`owner[s]` holds slot s."""

    version: int
    owner: tuple[PsId, ...]

    @classmethod
    def initial(cls, members: Sequence[PsId]) -> SlotMap:
        """Slots dealt out in turn."""
        assert members, "a slot map needs a ps"
        return cls(1, tuple(members[slot % len(members)] for slot in range(SLOTS)))

    @property
    def members(self) -> list[PsId]:
        """Everyone who holds a slot, in the order of their first one."""
        return list(dict.fromkeys(self.owner))

    def slots_of(self, ps: PsId) -> list[int]:
        return [slot for slot, owner in enumerate(self.owner) if owner == ps]

    def to_document(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {"version": self.version, "owner": self.owner}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SlotMap:
        """Raises KeyError, TypeError or ValueError where it is no map."""
        owner = tuple(document["owner"])
        if len(owner) != SLOTS or not all(isinstance(name, str) for name in owner):
            raise ValueError(f"expected an owner for each of {SLOTS} slots")
        return cls(int(document["version"]), owner)


def balance_slots(slot_map: SlotMap, members: Sequence[PsId]) -> list[SlotMove]:
    """The fewest moves after which `members` alone hold all slots, none of them two more than another."""
    assert members, "slots need a ps"
    held: dict[PsId, list[int]] = {member: [] for member in members}
    homeless: list[tuple[int, PsId]] = []
    for slot, owner in enumerate(slot_map.owner):
        if owner in held:
            held[owner].append(slot)
        else:
            homeless.append((slot, owner))
    # Those that hold most may keep one more than the others: that moves least.
    ranked = sorted(members, key=lambda member: -len(held[member]))
    share, more = divmod(SLOTS, len(members))
    quota = {member: share + (rank < more) for rank, member in enumerate(ranked)}
    for member in members:
        homeless += [(slot, member) for slot in held[member][quota[member] :]]
    takers = iter(member for member in members for _ in range(quota[member] - len(held[member][: quota[member]])))
    return [SlotMove(slot, source, next(takers)) for slot, source in homeless]
