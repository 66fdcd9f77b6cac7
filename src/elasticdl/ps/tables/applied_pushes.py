"""Records which pushes are in the rows, by sender and slot, so that each slot applies a push once. Pure.

A push has a sender and a number. It may be split, sent again, sent to another ps after its slots have moved, or
computed a second time by another worker: the owner of a slot looks up whether the push is in its rows.

For each slot the record is the highest number that came and a window of 64 numbers that ends there. Older numbers
count as applied, so a sender may have at most 64 pushes under way. A push is recorded for the slots of its ids only:
another slot may be recorded by a later part of the same push, or never.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps import _native
from elasticdl.ps.slots import SLOTS

WINDOW = 64

SlotMask = NDArray[np.uint8]  # 0 or 1 for each slot
PackedPushes = NDArray[np.int64]

_ONE = np.uint64(1)


def slot_mask(slots: Sequence[int]) -> SlotMask:
    """The mask of these slots, as the native core expects it."""
    mask = np.zeros(SLOTS, np.uint8)
    mask[list(slots)] = 1
    return mask


class _SenderWindows:
    """The pushes of one sender. Bit i of a window stands for the number `top - i`."""

    __slots__ = ("newest", "top", "window")

    def __init__(self) -> None:
        self.newest = 0  # no slot has a higher number
        self.top = np.zeros(SLOTS, np.int64)
        self.window = np.zeros(SLOTS, np.uint64)

    def has(self, number: int, slots: NDArray[np.int64]) -> NDArray[np.bool_]:
        age = self.top[slots] - number
        inside = (self.window[slots] >> np.clip(age, 0, WINDOW - 1).astype(np.uint64)) & _ONE
        applied: NDArray[np.bool_] = (age >= WINDOW) | ((age >= 0) & (inside != 0))
        return applied

    def join(self, slots: NDArray[np.int64], top: NDArray[np.int64], window: NDArray[np.uint64]) -> None:
        """Adds the pushes of other windows to these slots."""
        own_top = self.top[slots]
        higher = np.maximum(own_top, top)
        self.window[slots] = _shift_window(self.window[slots], higher - own_top) | _shift_window(window, higher - top)
        self.top[slots] = higher
        self.newest = max(self.newest, int(higher.max(initial=0)))


def _shift_window(window: NDArray[np.uint64], by: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Shifts windows; unlike in NumPy, a shift by all bits gives 0."""
    shifted = window << np.minimum(by, WINDOW - 1).astype(np.uint64)
    shifted[by >= WINDOW] = 0
    return shifted


class AppliedPushes:
    """The pushes of all senders at one ps. Numbers begin at 1. Not thread-safe."""

    def __init__(self) -> None:
        self._senders: dict[int, _SenderWindows] = {}

    def __len__(self) -> int:
        """The number of senders."""
        return len(self._senders)

    def find_applied(self, sender: int, number: int, slots: SlotMask) -> SlotMask | None:
        """Finds the slots that have this push already. None: no slot has it, which is the usual case."""
        windows = self._senders.get(sender)
        if windows is None or number > windows.newest:
            return None
        touched = np.flatnonzero(slots)
        applied = np.zeros(SLOTS, np.uint8)
        applied[touched] = windows.has(number, touched)
        return applied if applied.any() else None

    def record(self, sender: int, number: int, slots: SlotMask) -> None:
        """Records a push at these slots."""
        windows = self._senders.get(sender)
        if windows is None:
            windows = self._senders[sender] = _SenderWindows()
        _native.mark(windows.top, windows.window, slots, number)
        windows.newest = max(windows.newest, number)

    def forget(self, slots: SlotMask) -> None:
        """Forgets all pushes at these slots."""
        is_forgotten = slots.astype(np.bool_)
        for sender, windows in list(self._senders.items()):
            windows.top[is_forgotten] = 0
            windows.window[is_forgotten] = 0
            windows.newest = int(windows.top.max())
            if not windows.newest:
                del self._senders[sender]

    def pack(self, slots: SlotMask) -> PackedPushes:
        """Encodes the pushes at these slots for their next owner: the slots, then the windows of each sender."""
        packed_slots = np.flatnonzero(slots)
        pieces = [np.array([len(packed_slots)], np.int64), packed_slots]
        for sender, windows in self._senders.items():
            top = windows.top[packed_slots]
            if top.any():
                pieces += [
                    np.array([sender], np.uint64).view(np.int64),
                    top,
                    windows.window[packed_slots].view(np.int64),
                ]
        return np.concatenate(pieces)

    def merge_packed(self, document: PackedPushes) -> None:
        """Adds pushes that another ps encoded. Raises ValueError if the document is malformed."""
        count = int(document[0]) if len(document) else -1
        size = 1 + 2 * count
        if count < 0 or len(document) < 1 + count or (len(document) - 1 - count) % size:
            raise ValueError(
                f"applied pushes: expected slots, then windows of each sender. Received: {len(document)} numbers"
            )
        slots, rows = document[1 : 1 + count], document[1 + count :].reshape(-1, size)
        if not ((slots >= 0) & (slots < SLOTS)).all() or len(np.unique(slots)) != count:
            raise ValueError(f"applied pushes: expected distinct slots below {SLOTS}")
        if (rows[:, 1 : 1 + count] < 0).any():
            raise ValueError("applied pushes: expected numbers from 0 on")
        for row in rows:
            sender = int(row[:1].view(np.uint64)[0])
            windows = self._senders.setdefault(sender, _SenderWindows())
            windows.join(slots, row[1 : 1 + count], row[1 + count :].view(np.uint64))
