"""Who holds which slot. Pure: a map, and the moves that make it even again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from elasticdl.spec.ids import PsId

SLOTS = 1024  # as in native/src/hash.h


def number_of(ps: PsId) -> int:
    """3 for "ps-3": how the wire names it."""
    return int(ps.rpartition("-")[2])


class Move(NamedTuple):
    slot: int
    source: PsId  # the one that holds it now, or held it
    target: PsId


class SlotMap(NamedTuple):
    """`owner[s]` and `replica[s]` hold slot s; a slot without a replica has "" there."""

    version: int
    owner: tuple[PsId, ...]
    replica: tuple[PsId, ...]

    @classmethod
    def first(cls, members: Sequence[PsId], replicas: int) -> SlotMap:
        """Slots dealt out in turn; the replica of a slot is never with its owner."""
        count = len(members)
        assert count, "a slot map needs a ps"
        owner = tuple(members[slot % count] for slot in range(SLOTS))
        if replicas < 2 or count < 2:
            return cls(1, owner, (PsId(""),) * SLOTS)
        # Shifted by another amount every time round, so that the slots of one owner have replicas everywhere.
        shift = [1 + (slot // count) % (count - 1) for slot in range(SLOTS)]
        return cls(1, owner, tuple(members[(slot + shift[slot]) % count] for slot in range(SLOTS)))

    @property
    def members(self) -> list[PsId]:
        """Everyone who holds a slot, in the order of their first one."""
        return list(dict.fromkeys(self.owner))

    def document(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {"version": self.version, "owner": self.owner, "replica": self.replica}

    @classmethod
    def load(cls, document: Mapping[str, Any]) -> SlotMap:
        """Raises KeyError, TypeError or ValueError where it is no map."""
        owner, replica = tuple(document["owner"]), tuple(document["replica"])
        if len(owner) != SLOTS or len(replica) != SLOTS or not all(isinstance(one, str) for one in owner + replica):
            raise ValueError(f"expected an owner and a replica for each of {SLOTS} slots")
        return cls(int(document["version"]), owner, replica)

    def moved(self, moves: Iterable[Move]) -> SlotMap:
        """The map after these moves. A slot that moves onto its replica's place trades places with it."""
        owner, replica = list(self.owner), list(self.replica)
        for slot, _, target in moves:
            if replica[slot] == target:
                replica[slot] = owner[slot]
            owner[slot] = target
        return SlotMap(self.version + 1, tuple(owner), tuple(replica))


def balance(slot_map: SlotMap, members: Sequence[PsId]) -> list[Move]:
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
    return [Move(slot, source, next(takers)) for slot, source in homeless]
