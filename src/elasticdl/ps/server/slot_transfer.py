"""Moves slots to another ps, or makes a backup of them there, while workers go on.

All rows are sent first, then the rows that changed meanwhile, until few are left, then those under the lock.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from elasticdl.ps.slots import SLOTS, SlotMap, ps_number
from elasticdl.ps.tables.applied_pushes import SlotMask, slot_mask
from elasticdl.ps.tables.state import BackupHolder, PsState
from elasticdl.ps.wire.connections import PsConnections, PsUnreachable
from elasticdl.ps.wire.messages import NO_ROWS, MessageKind, PsMessage, TablePart
from elasticdl.spec import PsId

_FEW_ROWS = 2000  # rows whose transfer takes a millisecond or two
_MAX_ROUNDS = 8
_PIECES_PER_MESSAGE = 16  # in one message


class TransferResult(NamedTuple):
    rows: int  # sent, those sent twice included
    pause_s: float  # for so long nobody could pull or push here


def move_slots(
    holdings: PsState, slots: Sequence[int], target: PsId, lines: PsConnections, slot_map: SlotMap
) -> TransferResult:
    """Give `slots` to `target`, which `slot_map` names as their owner; it is in force at both when this returns.

    Where the target does not take them the map before stays in force here, with all rows.
    """
    transfer = SlotTransfer(holdings, target, lines)
    transfer.request(drop_message(slots))  # what an earlier move that failed has left there
    transfer.catch_up(slot_mask(slots))
    with holdings.exclusive():
        started = time.monotonic()
        transfer.finish(slot_mask(slots), json.dumps(slot_map.to_document()).encode())
        holdings.set_slot_map(slot_map)
        pause_s = time.monotonic() - started
    holdings.drop_slots(slot_mask(slots))
    if mirror := holdings.mirror:
        lines.connect(mirror.target, mirror.address)
        with contextlib.suppress(PsUnreachable):  # the slots have moved; whoever holds copies may be gone
            lines.request(mirror.target, drop_message(slots)._replace(backup_of=ps_number(holdings.name) + 1))
    return TransferResult(transfer.rows, pause_s)


def drop_message(slots: Sequence[int]) -> PsMessage:
    return PsMessage(MessageKind.DROP, 0, parts=(TablePart(0, np.array(slots, np.int64), NO_ROWS),))


class SlotTransfer:
    """Rows of some slots on their way to another ps: to be its own, or its copy of ps-N (`copy_of` N + 1)."""

    def __init__(self, holdings: PsState, target: PsId, lines: PsConnections, copy_of: int = 0) -> None:
        self._holdings = holdings
        self._target = target
        self._lines = lines
        self._copy_of = copy_of
        self._numbers: dict[str, int] = {}  # of the tables, at the target
        self._since = 0
        self.rows = 0

    def request(self, message: PsMessage) -> PsMessage:
        return self._lines.request(self._target, message._replace(backup_of=self._copy_of))

    def catch_up(self, slots: SlotMask) -> None:
        """Send all rows, then again and again what changed meanwhile, until that is little."""
        for _ in range(_MAX_ROUNDS):
            turned = self._holdings.begin_generation()
            count = self._send(slots)
            self._since = turned
            if count <= _FEW_ROWS:
                return

    def finish(self, slots: SlotMask, text: bytes = b"") -> None:
        """While nobody pulls or pushes: send the last, and hand over."""
        self._send(slots)
        self.request(
            PsMessage(
                MessageKind.TAKE_OVER,
                0,
                parts=(TablePart(0, self._holdings.pack_applied_pushes(slots), NO_ROWS),),
                text=text,
            )
        )

    def declare(self) -> None:
        declared = self.request(PsMessage(MessageKind.DECLARE, 0, text=self._holdings.encode_specs()))
        self._numbers = json.loads(declared.text)

    def _send(self, slots: SlotMask) -> int:
        """Returns when all of it has been loaded there."""
        sent, pieces = 0, list[TablePart]()
        for spec, (values, state) in self._holdings.changed_rows(slots, self._since):
            if spec.name not in self._numbers:  # workers may declare tables at any time
                self.declare()
            number = self._numbers[spec.name]
            pieces += [values._replace(table=number), state._replace(table=number)]
            sent += len(values.ids)
            if len(pieces) >= 2 * _PIECES_PER_MESSAGE:
                self.request(PsMessage(MessageKind.LOAD, 0, parts=tuple(pieces)))
                pieces = []
        if pieces:
            self.request(PsMessage(MessageKind.LOAD, 0, parts=tuple(pieces)))
        self.rows += sent
        return sent


def create_backup(holdings: PsState, target: PsId, lines: PsConnections) -> TransferResult:
    """Let `target` hold a copy of all our slots; from the moment this returns every push waits for it.

    A copy that it holds of us already is made anew.
    """
    transfer = SlotTransfer(holdings, target, lines, ps_number(holdings.name) + 1)
    transfer.declare()
    transfer.request(drop_message(range(SLOTS)))
    transfer.catch_up(holdings.owned_slots)
    with holdings.exclusive():
        started = time.monotonic()
        transfer.declare()  # tables without a row are copied, too
        transfer.finish(holdings.owned_slots)
        holdings.set_backup(BackupHolder(target, lines.addresses[target]))
        pause_s = time.monotonic() - started
    return TransferResult(transfer.rows, pause_s)


def remove_backup(holdings: PsState) -> None:
    """The copy is gone, or no longer wanted: nobody waits for it any more."""
    holdings.set_backup(None)
