"""Backups of other ps: every change that the owner makes to its rows is repeated in the backup.

Requests for a backup wait for nothing but memory, so no owner waits for its backup for long.
"""

from __future__ import annotations

import json

import numpy as np

from elasticdl.ps import _native
from elasticdl.ps.slots import SLOTS, ps_number
from elasticdl.ps.tables import request_checks
from elasticdl.ps.tables.applied_pushes import SlotMask, slot_mask
from elasticdl.ps.tables.row_store import RequestRefused, RowStore, select_slots, touched_slots
from elasticdl.ps.tables.shared_lock import SharedLock
from elasticdl.ps.wire.messages import MessageKind, PsMessage
from elasticdl.spec import PsId


class BackupNotFound(Exception):
    """The backup was promoted or dropped: its owner no longer owns these slots."""


class SlotBackup:
    """The backup of one other ps, and the slots that are complete in it."""

    __slots__ = ("slots", "store")

    def __init__(self, store: RowStore) -> None:
        self.store = store
        self.slots = np.zeros(SLOTS, np.uint8)

    def move_to(self, target: RowStore, slots: SlotMask, now: int) -> int:
        """Moves rows and applied pushes of these slots into `target`; returns the number of rows."""
        rows = 0
        self.store.flush(now)
        target.drop_slots(slots)
        target.merge_applied_pushes(self.store.pack_applied_pushes(slots))
        numbers = target.declare(self.store.encode_specs())
        for stripe in range(_native.STRIPES):
            stripe_slots = np.zeros(SLOTS, np.uint8)
            stripe_slots[stripe :: _native.STRIPES] = slots[stripe :: _native.STRIPES]
            for spec, pieces in self.store.changed_rows(stripe_slots, 0, range(stripe, stripe + 1)):
                rows += len(pieces[0].ids)
                target.load_rows([piece._replace(table=numbers[spec.name]) for piece in pieces], now)
            self.store.drop_slots(stripe_slots)  # at once: there may not be memory for all rows twice
        return rows


class SlotBackups:
    """All backups on this ps, by the number of their owner. Every method may be called from any thread."""

    def __init__(self, seed: int, budget: _native.Budget, grads_to_wait: int) -> None:
        self._seed = seed
        self._budget = budget
        self._grads_to_wait = grads_to_wait
        self._backups: dict[int, SlotBackup] = {}
        self.lock = SharedLock()

    def __len__(self) -> int:
        return len(self._backups)

    @property
    def row_counts(self) -> dict[str, int]:
        return {f"ps-{number - 1}": backup.store.row_count for number, backup in list(self._backups.items())}

    @property
    def waited_s(self) -> float:
        return sum(backup.store.waited_s for backup in list(self._backups.values()))

    def remove(self, owner: PsId) -> SlotBackup | None:
        """Removes and returns the backup of this ps. The caller holds the lock exclusively."""
        return self._backups.pop(ps_number(owner) + 1, None)

    def serve(self, message: PsMessage, now: int) -> bytes:
        """Applies a message to a backup; returns the text of the reply. The caller holds the lock.

        Raises BackupNotFound, RequestRefused.
        """
        if message.kind is MessageKind.DECLARE:
            new_backup = SlotBackup(RowStore(self._seed, self._budget, self._grads_to_wait, admits=False))
            store = self._backups.setdefault(message.backup_of, new_backup).store
            return json.dumps(store.declare(message.text)).encode()
        backup = self._backups.get(message.backup_of)
        if backup is None:
            raise BackupNotFound
        match message.kind:
            case MessageKind.PUSH:
                self._push(backup, message, now)
            case MessageKind.INSERT:
                backup.store.check_rows(message.parts, "value")
                for part in message.parts:
                    backup.store.insert_rows(part, now)
            case MessageKind.LOAD:
                backup.store.load_rows(message.parts, now)
            case MessageKind.TAKE_OVER:
                document = request_checks.parse_applied_pushes(message)
                request_checks.merge_applied_pushes(backup.store, document)
                backup.slots |= slot_mask(document[1 : 1 + int(document[0])].tolist())
            case MessageKind.DROP:
                slots = request_checks.parse_slots(message)
                backup.slots &= 1 - slots
                backup.store.drop_slots(slots)
            case _:
                raise RequestRefused(f"a backup does not serve {message.kind.name}")
        return b""

    def _push(self, backup: SlotBackup, message: PsMessage, now: int) -> None:
        """Applies a push to the slots that are complete; the others are loaded later, with this push in their rows."""
        request_checks.check_numbers(message)
        backup.store.check_rows(message.parts, "gradient")
        message = message._replace(parts=select_slots(message.parts, backup.slots))
        parts = backup.store.claim_push(message, touched_slots(message.parts))
        if parts is None:
            return
        if self._grads_to_wait > 1:
            backup.store.accumulate_push(message, parts, message.learning_rate, message.clock, now)
        else:
            backup.store.apply_push(parts, message.learning_rate, message.step, now)
