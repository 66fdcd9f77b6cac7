"""Moves slots to another ps, or makes a backup of them there, while workers continue.

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

_FEW_ROWS = 2000  # their transfer takes a millisecond or two
_MAX_ROUNDS = 8
_PIECES_PER_MESSAGE = 16


class TransferResult(NamedTuple):
    rows: int  # sent; a row that was sent twice counts twice
    pause_s: float  # how long this ps did not serve requests


def move_slots(
    ps_state: PsState, slots: Sequence[int], target: PsId, connections: PsConnections, slot_map: SlotMap
) -> TransferResult:
    """Moves `slots` to `target`, their owner in `slot_map`, which both ps use when this returns.

    If the target does not take them over, this ps keeps the old map and all rows.
    """
    transfer = SlotTransfer(ps_state, target, connections)
    transfer.request(drop_message(slots))  # rows that an earlier, failed move left there
    transfer.catch_up(slot_mask(slots))
    with ps_state.exclusive():
        started = time.monotonic()
        transfer.finish(slot_mask(slots), json.dumps(slot_map.to_document()).encode())
        ps_state.set_slot_map(slot_map)
        pause_s = time.monotonic() - started
    ps_state.drop_slots(slot_mask(slots))
    if backup := ps_state.backup:
        connections.connect(backup.target, backup.address)
        with contextlib.suppress(PsUnreachable):  # the slots have moved; the holder of the backup may be gone
            connections.request(backup.target, drop_message(slots)._replace(backup_of=ps_number(ps_state.name) + 1))
    return TransferResult(transfer.rows, pause_s)


def drop_message(slots: Sequence[int]) -> PsMessage:
    return PsMessage(MessageKind.DROP, 0, parts=(TablePart(0, np.array(slots, np.int64), NO_ROWS),))


class SlotTransfer:
    """Sends rows of some slots to another ps, as its own or as its backup of ps-N (`backup_of` N + 1)."""

    def __init__(self, ps_state: PsState, target: PsId, connections: PsConnections, backup_of: int = 0) -> None:
        self._ps_state = ps_state
        self._target = target
        self._connections = connections
        self._backup_of = backup_of
        self._numbers: dict[str, int] = {}  # of the tables, at the target
        self._since = 0
        self.rows = 0

    def request(self, message: PsMessage) -> PsMessage:
        return self._connections.request(self._target, message._replace(backup_of=self._backup_of))

    def catch_up(self, slots: SlotMask) -> None:
        """Sends all rows, then those that changed meanwhile, until they are few."""
        for _ in range(_MAX_ROUNDS):
            generation = self._ps_state.begin_generation()
            count = self._send(slots)
            self._since = generation
            if count <= _FEW_ROWS:
                return

    def finish(self, slots: SlotMask, text: bytes = b"") -> None:
        """Sends the last changes and makes the target take over. The caller keeps requests out."""
        self._send(slots)
        self.request(
            PsMessage(
                MessageKind.TAKE_OVER,
                0,
                parts=(TablePart(0, self._ps_state.pack_applied_pushes(slots), NO_ROWS),),
                text=text,
            )
        )

    def declare(self) -> None:
        declared = self.request(PsMessage(MessageKind.DECLARE, 0, text=self._ps_state.encode_specs()))
        self._numbers = json.loads(declared.text)

    def _send(self, slots: SlotMask) -> int:
        """Sends the rows that changed; returns their number when the target has loaded them."""
        sent, pieces = 0, list[TablePart]()
        for spec, (values, state) in self._ps_state.changed_rows(slots, self._since):
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


def create_backup(ps_state: PsState, target: PsId, connections: PsConnections) -> TransferResult:
    """Makes a backup of all slots of this ps on `target`, replacing an earlier one; then every push waits for it."""
    transfer = SlotTransfer(ps_state, target, connections, ps_number(ps_state.name) + 1)
    transfer.declare()
    transfer.request(drop_message(range(SLOTS)))
    transfer.catch_up(ps_state.owned_slots)
    with ps_state.exclusive():
        started = time.monotonic()
        transfer.declare()  # also tables without a row
        transfer.finish(ps_state.owned_slots)
        ps_state.set_backup(BackupHolder(target, connections.addresses[target]))
        pause_s = time.monotonic() - started
    return TransferResult(transfer.rows, pause_s)


def remove_backup(ps_state: PsState) -> None:
    """Forgets the backup on another ps: pushes no longer wait for it."""
    ps_state.set_backup(None)
