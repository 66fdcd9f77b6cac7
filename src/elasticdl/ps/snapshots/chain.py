"""The files of a snapshot and of the snapshots it builds upon: which of them counts for which slot. Pure.

Every ps that owns slots writes one file for each snapshot. The file has all rows of some slots, which are *full* in
it, and the changed rows of the other slots: those that changed since the base. So the rows of a slot begin with the
newest file in which the slot is full, and later files of its owner are loaded on top. Older files do not count for
the slot, no matter who wrote them. A slot is full in the first file of a new owner and in one of every `MAX_CHAIN`
snapshots, other slots each time: no snapshot is much larger than the others, and no chain is longer than that.
"""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from elasticdl.errors import CheckpointCorrupt
from elasticdl.ps.slots import SLOTS
from elasticdl.ps.tables.applied_pushes import SlotMask
from elasticdl.spec import PsId
from elasticdl.storage.names import FileName

MAX_CHAIN = 8
_MAX_ANCESTORS = 32


def pack_slots(mask: SlotMask) -> str:
    """Encodes a mask of slots as text."""
    return np.packbits(mask).tobytes().hex()


def unpack_slots(text: str) -> SlotMask:
    """Decodes a mask of slots. Raises ValueError if the text is not one."""
    mask: SlotMask = np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))
    if len(mask) != SLOTS:
        raise ValueError(f"expected {SLOTS} slots. Received: {len(mask)}")
    return mask


def choose_full_slots(owned: SlotMask, owned_before: SlotMask | None, number: int) -> SlotMask:
    """Chooses the slots that are full in snapshot `number` of a ps that owned `owned_before` at the base."""
    if owned_before is None:
        return owned.copy()
    in_turn = (np.arange(SLOTS) + number) % MAX_CHAIN == 0
    return np.where(in_turn | (owned_before == 0), owned, np.uint8(0))


def _check_packed(text: str) -> str:
    unpack_slots(text)
    return text


PackedSlots = Annotated[str, AfterValidator(_check_packed)]


class SnapshotFile(BaseModel):
    """The file that one ps wrote for one snapshot."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: FileName
    ps: PsId
    number: int  # of the snapshot
    step: int
    owned_slots: PackedSlots
    full_slots: PackedSlots
    rows: int
    applied_pushes: int  # in the rows of this ps


class SnapshotChain(BaseModel):
    """One snapshot: its own files and those it builds upon, oldest first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = 1
    snapshot_id: str  # unique
    number: int
    step: int
    base_ids: tuple[str, ...] = ()  # the snapshots that it builds upon, newest first
    files: tuple[SnapshotFile, ...]

    @classmethod
    def parse(cls, text: str, path: str) -> Self:
        try:
            return cls.model_validate_json(text)
        except ValidationError as exc:
            raise CheckpointCorrupt(f"{path} is not the index of a snapshot: {exc}") from exc

    @classmethod
    def extend(cls, base: SnapshotChain | None, snapshot_id: str, step: int, files: tuple[SnapshotFile, ...]) -> Self:
        """Returns the chain with one more snapshot, without the files that no longer count."""
        base_ids = () if base is None else (base.snapshot_id, *base.base_ids)[:_MAX_ANCESTORS]
        number = files[0].number
        extended = cls(snapshot_id=snapshot_id, number=number, step=step, files=(*(base.files if base else ()), *files))
        effective = tuple(file for file, _ in extended.effective_files())
        return cls(snapshot_id=snapshot_id, number=number, step=step, base_ids=base_ids, files=effective)

    def effective_files(self) -> list[tuple[SnapshotFile, SlotMask]]:
        """Returns the files that count, oldest first, each with the slots it counts for.

        Raises CheckpointCorrupt if no file has the rows of a slot.
        """
        first_position = np.full(SLOTS, -1)  # for each slot, of the newest file in which it is full
        for position, file in enumerate(self.files):
            first_position[(unpack_slots(file.full_slots) & unpack_slots(file.owned_slots)) == 1] = position
        if missing := np.flatnonzero(first_position < 0).tolist():
            raise CheckpointCorrupt(f"snapshot of step {self.step}: no file has the rows of slot {missing[0]}")
        effective = []
        for position, file in enumerate(self.files):
            mask = unpack_slots(file.owned_slots) & (first_position <= position).astype(np.uint8)
            if mask.any() or file.number == self.number:
                effective.append((file, mask))
        return effective

    @property
    def newest_files(self) -> list[SnapshotFile]:
        """The files of this snapshot itself: one for each owner."""
        return [file for file in self.files if file.number == self.number]
