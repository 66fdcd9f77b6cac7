"""The state of one ps: the rows of its slots and backups of other ps. Serves requests, without sockets."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from elasticdl.ps import _native
from elasticdl.ps.slots import SLOTS, SlotMap, ps_number
from elasticdl.ps.tables import request_checks
from elasticdl.ps.tables.applied_pushes import PackedPushes, SlotMask, slot_mask
from elasticdl.ps.tables.backups import BackupNotFound, SlotBackups
from elasticdl.ps.tables.push_policy import ACCEPT_ALL, PushPolicy, staleness
from elasticdl.ps.tables.push_statistics import PushCountFile, PushStatistics
from elasticdl.ps.tables.row_store import RequestRefused, RowStore, touched_slots
from elasticdl.ps.tables.shared_lock import SharedLock
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire.messages import MessageKind, PsMessage, ReplyStatus, TablePart
from elasticdl.spec import PsId


class BackupHolder(NamedTuple):
    """The ps that holds the backup of all slots of this ps."""

    target: PsId
    address: str


class ServeResult(NamedTuple):
    """The result of a request. With `backup`, `reply` may be sent after the backup has replied to `forward`.

    Call `PsState.finish_forward` then.
    """

    reply: PsMessage
    backup: BackupHolder | None = None
    forward: PsMessage | None = None


class PsState:
    """Rows, backups and statistics of a ps. Every method may be called from any thread."""

    def __init__(
        self,
        name: PsId,
        seed: int,
        memory_limit: int = 0,
        *,
        policy: PushPolicy = ACCEPT_ALL,
        push_count_file: PushCountFile | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._budget = _native.Budget(memory_limit)
        self._policy = policy
        self._clock = clock
        self._serving_lock = SharedLock()
        self._rows = RowStore(seed, self._budget, policy.grads_to_wait)
        self._backups = SlotBackups(seed, self._budget, policy.grads_to_wait)
        self._statistics = PushStatistics(push_count_file)
        self._lock = threading.Lock()  # guards everything below
        self.slot_map = SlotMap(0, (PsId(""),) * SLOTS)
        self._owned = np.zeros(SLOTS, np.uint8)
        self.backup: BackupHolder | None = None
        self.backup_failure = ""  # why the backup is no longer complete

    # ---- requests

    def serve(self, message: PsMessage, *, wait: bool = True) -> ServeResult | None:
        """Serves a request. None: the lock is held and `wait` is false."""
        try:
            if message.kind is MessageKind.STATUS:
                return ServeResult(self._reply(message, text=json.dumps(self.status()).encode()))
            lock = self._backups.lock if message.backup_of else self._serving_lock
            if not lock.acquire_shared(wait=wait):
                return None
            answer = None
            try:
                answer = ServeResult(self._serve_backup(message)) if message.backup_of else self._serve(message)
            finally:
                if answer is None or answer.backup is None:
                    lock.release_shared()
            return answer
        except (RequestRefused, _native.MemoryLimit) as exc:
            self._statistics.add(refused=1)
            return ServeResult(self._reply(message, status=ReplyStatus.REFUSED, text=str(exc).encode()))

    @property
    def has_backups(self) -> bool:
        """Whether this ps has a backup or holds one: then serving threads must not wait for the lock."""
        return self.backup is not None or bool(self._backups)

    def finish_forward(self) -> None:
        """Records that the backup has what was forwarded, or that no reply of it is expected any more."""
        self._serving_lock.release_shared()

    def declare(self, text: bytes) -> dict[str, int]:
        """Creates the tables of a model that are new; returns the number of each. All workers must declare the same."""
        return self._rows.declare(text)

    @property
    def specs(self) -> list[TableSpec]:
        return self._rows.specs

    def set_slot_map(self, slot_map: SlotMap) -> None:
        with self._lock:
            if slot_map.version > self.slot_map.version:
                self.slot_map, self._owned = slot_map, slot_mask(slot_map.slots_of(self.name))

    def status(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "map_version": self.slot_map.version,
            "slots": int(self._owned.sum()),
            "applied_pushes": self.push_count,
            "repeated_pushes": self._statistics.repeated,
            "bytes": self._budget.used,
            "backup": self.backup.target if self.backup else "",
            "backup_failure": self.backup_failure,
            "backup_rows": self._backups.row_counts,
            "tables": self._rows.status(),
        }

    def heartbeat(self) -> dict[str, Any]:
        """The values of a PsHeartbeat that the state knows."""
        return self._statistics.as_dict() | {
            "map_version": self.slot_map.version,
            "rows": self._rows.row_count,
            "bytes": self._budget.used,
            "lock_wait_s": self._serving_lock.waited_s + self._rows.waited_s + self._backups.waited_s,
        }

    @property
    def push_count(self) -> int:
        return self._statistics.applied

    @property
    def clock(self) -> int:
        """Incremented with every update."""
        return self._statistics.clock

    @clock.setter
    def clock(self, clock: int) -> None:
        self._statistics.clock = clock

    # ---- moves of slots, see slot_transfer.py, and snapshots

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keeps all requests out. All earlier pushes are in the rows, here and in the backup."""
        with self._serving_lock.exclusive():
            if self._rows.flush(self._now()):
                self._statistics.record_update()
            yield

    @property
    def owned_slots(self) -> SlotMask:
        """The slots that this ps owns."""
        return self._owned

    def begin_generation(self) -> int:
        """Begins a new generation of changes; returns its number."""
        return self._rows.begin_generation()

    def changed_rows(
        self, slots: SlotMask, since: int, stripes: range = range(_native.STRIPES)
    ) -> Iterator[tuple[TableSpec, tuple[TablePart, TablePart]]]:
        """Yields rows of these slots that changed in generation `since` or later, in pieces of values and state."""
        return self._rows.changed_rows(slots, since, stripes)

    def load_rows(self, parts: Sequence[TablePart]) -> None:
        """Loads rows that `changed_rows` returned, with the table numbers of this ps."""
        self._rows.load_rows(parts, self._now())

    def pack_applied_pushes(self, slots: SlotMask) -> PackedPushes:
        """Encodes which pushes are in the rows of these slots."""
        return self._rows.pack_applied_pushes(slots)

    def merge_applied_pushes(self, document: PackedPushes) -> None:
        self._rows.merge_applied_pushes(document)

    def drop_slots(self, slots: SlotMask) -> int:
        """Drops rows and applied pushes of these slots; returns the number of rows."""
        return self._rows.drop_slots(slots)

    def expire_rows(self) -> int:
        """Drops rows that were not used for the ttl of their table; returns how many."""
        return self._rows.expire_rows(self._now())

    def encode_specs(self) -> bytes:
        """The specs of all tables, as in the text of DECLARE."""
        return self._rows.encode_specs()

    # ---- backups, see backups.py

    def set_backup(self, backup: BackupHolder | None) -> None:
        """Forwards every change to this backup from now on. None: to no backup."""
        with self._lock:
            self.backup, self.backup_failure = backup, ""

    def fail_backup(self, backup: BackupHolder, reason: str) -> None:
        """Gives up a backup that is no longer complete: pushes go on without it, and the next heartbeat says why."""
        with self._lock:
            if self.backup == backup:
                self.backup, self.backup_failure = None, f"{backup.target}: {reason}"

    def drop_backup_of(self, owner: PsId) -> None:
        """Drops the backup that this ps holds of another."""
        with self._backups.lock.exclusive():
            self._backups.remove(owner)

    def promote_backup(self, lost: PsId, slot_map: SlotMap) -> int:
        """Takes over the slots of a lost ps from its backup, as in `slot_map`; returns the number of rows."""
        if self.backup and self.backup.target == lost:
            self.set_backup(None)
        with self._serving_lock.exclusive(), self._backups.lock.exclusive():
            backup = self._backups.remove(lost)
            rows = 0
            if backup is not None:
                new_slots = slot_mask(slot_map.slots_of(self.name)) & (1 - self._owned)
                rows = backup.move_to(self._rows, backup.slots & new_slots, self._now())
            self.set_slot_map(slot_map)
        return rows

    # ---- inside

    def _serve(self, message: PsMessage) -> ServeResult:
        match message.kind:
            case MessageKind.PULL | MessageKind.PULL_EXISTING:
                return ServeResult(self._pull(message))
            case MessageKind.PUSH:
                return self._push(message)
            case MessageKind.INSERT:
                self._rows.check_rows(message.parts, "value")
                if (touched_slots(message.parts) > self._owned).any():
                    return ServeResult(self._moved(message))
                inserted = tuple(self._rows.insert_rows(part, self._now()) for part in message.parts)
                return self._with_backup(message._replace(parts=inserted))
            case MessageKind.DECLARE:
                text = json.dumps(self.declare(message.text)).encode()
                return self._with_backup(message._replace(text=self._rows.encode_specs()), text=text)
            case MessageKind.READ_STRIPE:
                return ServeResult(
                    self._reply(
                        message, parts=self._rows.read_stripe(request_checks.parse_stripe(message), self._owned)
                    )
                )
            case MessageKind.LOAD:
                self._rows.load_rows(message.parts, self._now())
                return self._with_backup(message)
            case MessageKind.TAKE_OVER:
                document, slot_map = (
                    request_checks.parse_applied_pushes(message),
                    request_checks.parse_slot_map(message, self.slot_map.version),
                )
                request_checks.merge_applied_pushes(self._rows, document)
                self.set_slot_map(slot_map)
                return self._with_backup(message)
            case MessageKind.DROP:
                slots = request_checks.parse_slots(message)
                if (slots & self._owned).any():
                    raise RequestRefused("DROP: expected slots that this ps does not own")
                self._rows.drop_slots(slots)
                return self._with_backup(message)
        raise RequestRefused(f"a ps does not serve {message.kind.name}")

    def _pull(self, message: PsMessage) -> PsMessage:
        if message.map_version != self.slot_map.version and any(
            _native.foreign(part.ids, self._owned) for part in message.parts
        ):
            return self._moved(message)
        clock, now = self.clock, self._now()  # read first: the values are as new as the clock, or newer
        create = message.kind is MessageKind.PULL
        parts = tuple(self._rows.pull(part, now, create=create) for part in message.parts)
        return self._reply(message, parts=parts)._replace(clock=clock, dtype=message.dtype)

    def _push(self, message: PsMessage) -> ServeResult:
        request_checks.check_numbers(message)
        self._rows.check_rows(message.parts, "gradient")
        slots = touched_slots(message.parts)
        if (slots > self._owned).any():
            return ServeResult(self._moved(message))
        message = message._replace(parts=self._rows.filter_admitted(message.parts))
        if self._policy.grads_to_wait > 1:
            with self._lock:  # while an update is made, no push may take the clock before it
                return self._apply_push(message, slots)
        return self._apply_push(message, slots)

    def _apply_push(self, message: PsMessage, slots: SlotMask) -> ServeResult:
        group = self.clock
        age = staleness(group, message.clock)
        if self._policy.is_stale(age) and not self._rows.has_push(message, slots):
            self._statistics.add(stale=1)
            return ServeResult(self._reply(message, status=ReplyStatus.STALE))
        message = message._replace(
            clock=group, learning_rate=self._policy.scale_learning_rate(message.learning_rate, age)
        )
        parts = self._rows.claim_push(message, slots)
        if parts is None:
            self._statistics.add(repeated=1)
            return self._with_backup(message)
        is_update = True
        if self._policy.grads_to_wait > 1:
            is_update = self._rows.accumulate_push(message, parts, message.learning_rate, group, self._now())
        else:
            self._rows.apply_push(parts, message.learning_rate, message.step, self._now())
        self._statistics.record_push(age, is_update=is_update)
        return self._with_backup(message)

    def _with_backup(self, message: PsMessage, text: bytes = b"") -> ServeResult:
        """Builds the result of a change that the backup must have, too. Called inside the lock: the backup is fixed."""
        reply, backup = self._reply(message, text=text), self.backup
        if backup is None:
            return ServeResult(reply)
        return ServeResult(reply, backup, message._replace(backup_of=ps_number(self.name) + 1))

    def _serve_backup(self, message: PsMessage) -> PsMessage:
        try:
            return self._reply(message, text=self._backups.serve(message, self._now()))
        except BackupNotFound:
            return self._moved(message)

    def _moved(self, message: PsMessage) -> PsMessage:
        return self._reply(message, status=ReplyStatus.MOVED, text=json.dumps(self.slot_map.to_document()).encode())

    def _reply(
        self,
        message: PsMessage,
        *,
        status: ReplyStatus = ReplyStatus.OK,
        parts: tuple[TablePart, ...] = (),
        text: bytes = b"",
    ) -> PsMessage:
        self._statistics.requests += 1
        return PsMessage(
            MessageKind.REPLY, message.request, self.slot_map.version, status, clock=self.clock, parts=parts, text=text
        )

    def _now(self) -> int:
        return int(self._clock())
