"""The files of a cut and of those it builds upon: which of them counts for which slot. Pure.

Every ps that owns slots writes one file per cut. In it are all rows of some slots (they are *whole* in it) and of the
others those that changed since the cut before. So the rows of a slot begin with the newest file in which it is whole,
and later files of its owner go on top: older ones have nothing to say about it, whoever wrote them. A slot is whole in
the first file of a new owner, and in one of every `LONGEST` cuts, each time other slots: no cut is much larger than
the rest, and no chain longer than that.
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


def pack_slots(flags: SlotMask) -> str:
    """Slots as text."""
    return np.packbits(flags).tobytes().hex()


def unpack_slots(text: str) -> SlotMask:
    """Raises ValueError where these are no slots."""
    mask: SlotMask = np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))
    if len(mask) != SLOTS:
        raise ValueError(f"expected {SLOTS} slots. Received: {len(mask)}")
    return mask


def choose_full_slots(owned: SlotMask, before: SlotMask | None, number: int) -> SlotMask:
    """Which slots are written whole in cut `number`, by a ps that owned `before` at the cut it builds upon."""
    if before is None:
        return owned.copy()
    in_turn = (np.arange(SLOTS) + number) % MAX_CHAIN == 0
    return np.where(in_turn | (before == 0), owned, np.uint8(0))


def _check_packed(text: str) -> str:
    unpack_slots(text)
    return text


PackedSlots = Annotated[str, AfterValidator(_check_packed)]


class SnapshotFile(BaseModel):
    """What one ps wrote for one cut."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: FileName
    ps: PsId
    number: int  # of the cut
    step: int
    owned: PackedSlots
    whole: PackedSlots
    rows: int
    applied: int  # pushes in the rows of this ps


class SnapshotChain(BaseModel):
    """One cut: its own files and those it builds upon, oldest first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = 1
    cut: str  # unlike any other's
    number: int
    step: int
    upon: tuple[str, ...] = ()  # cuts that it builds upon, newest first
    files: tuple[SnapshotFile, ...]

    @classmethod
    def parse(cls, text: str, where: str) -> Self:
        try:
            return cls.model_validate_json(text)
        except ValidationError as exc:
            raise CheckpointCorrupt(f"{where} is no index of a cut: {exc}") from exc

    @classmethod
    def extend(cls, before: SnapshotChain | None, cut: str, step: int, files: tuple[SnapshotFile, ...]) -> Self:
        """The chain with a cut more, without the files that no longer count."""
        upon = () if before is None else (before.cut, *before.upon)[:_MAX_ANCESTORS]
        number = files[0].number
        extended = cls(cut=cut, number=number, step=step, files=(*(before.files if before else ()), *files))
        effective = tuple(file for file, _ in extended.effective_files())
        return cls(cut=cut, number=number, step=step, upon=upon, files=effective)

    def effective_files(self) -> list[tuple[SnapshotFile, SlotMask]]:
        """The files that count, oldest first, and the slots whose rows count in each. Raises CheckpointCorrupt."""
        begins = np.full(SLOTS, -1)
        for position, file in enumerate(self.files):
            begins[(unpack_slots(file.whole) & unpack_slots(file.owned)) == 1] = position
        if missing := np.flatnonzero(begins < 0).tolist():
            raise CheckpointCorrupt(f"cut of step {self.step}: no file has the rows of slot {missing[0]}")
        effective = []
        for position, file in enumerate(self.files):
            flags = unpack_slots(file.owned) & (begins <= position).astype(np.uint8)
            if flags.any() or file.number == self.number:
                effective.append((file, flags))
        return effective

    @property
    def newest_files(self) -> list[SnapshotFile]:
        """Those of this very cut: one for each owner."""
        return [file for file in self.files if file.number == self.number]
