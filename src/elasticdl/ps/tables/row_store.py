"""The rows of a ps, or of its backup of another ps, and which pushes are in them.

Every method may be called from any thread.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from elasticdl.ps import _native
from elasticdl.ps.slots import SLOTS
from elasticdl.ps.tables.applied_pushes import AppliedPushes, PackedPushes, SlotMask
from elasticdl.ps.tables.table import TableSpec, create_table
from elasticdl.ps.wire.messages import NO_IDS, NO_ROWS, Floats, Ids, PsMessage, TablePart

_MAX_PENDING_UPDATES = 8  # after this many updates no push of an earlier one can be on its way to a backup


class RequestRefused(Exception):
    """The request is wrong; the message says what was expected and what was received."""


@dataclass(slots=True)
class _PendingUpdate:
    """Pushes that together will make one update."""

    pushes: int = 0
    rate: float = 0.0
    step: int = 0
    parts: list[TablePart] = field(default_factory=list)

    def add(self, message: PsMessage, parts: Sequence[TablePart], rate: float) -> None:
        self.pushes += 1
        self.rate, self.step = rate, max(self.step, message.step)
        # Copies: once the push is answered the sender may reuse its memory.
        self.parts += [TablePart(part.table, part.ids.copy(), part.rows.copy()) for part in parts]

    def means(self) -> Iterator[TablePart]:
        """Yields for each table the mean over the pushes, by id."""
        for table in dict.fromkeys(part.table for part in self.parts):
            parts = [part for part in self.parts if part.table == table]
            ids, inverse = _native.unique(np.concatenate([part.ids for part in parts]))
            sums = np.empty((len(ids), parts[0].rows.shape[1]), np.float32)
            _native.segment_sum(np.concatenate([part.rows for part in parts]), inverse, sums)
            sums /= np.float32(self.pushes)
            yield TablePart(table, ids, sums)


class RowStore:
    """The tables of a ps. `admits`: whether an id gets a row only after the number of sightings of its table."""

    def __init__(self, seed: int, budget: _native.Budget, grads_to_wait: int = 1, *, admits: bool = True) -> None:
        self._seed = seed
        self._budget = budget
        self._grads_to_wait = grads_to_wait
        self._admits = admits
        self._lock = threading.Lock()  # guards everything below
        self.specs: list[TableSpec] = []
        self.tables: list[_native.Table] = []
        self._generation = 1  # of every table
        self._applied_pushes = AppliedPushes()
        self._waiting: dict[int, _PendingUpdate] = {}  # by the clock at which they came

    def declare(self, text: bytes) -> dict[str, int]:
        """Creates the tables of a model that are new; returns the number of each. All workers must declare the same."""
        try:
            specs = [TableSpec.model_validate(document) for document in json.loads(text)]
        except (ValidationError, ValueError, TypeError) as exc:
            raise RequestRefused(f"tables: {exc}") from exc
        with self._lock:
            numbers = {spec.name: number for number, spec in enumerate(self.specs)}
            for spec in specs:
                if spec.name not in numbers:
                    numbers[spec.name] = len(self.specs)
                    own_spec = spec if self._admits else spec.model_copy(update={"admit_after": 1})
                    table = create_table(own_spec, self._seed, self._budget)
                    while table.generation < self._generation:  # one generation number holds for all tables
                        table.turn()
                    self.tables.append(table)
                    self.specs.append(spec)
                elif (existing := self.specs[numbers[spec.name]]) != spec:
                    raise RequestRefused(
                        f"table {spec.name}: expected {_describe_difference(existing, spec)}, as others declared it"
                    )
            return {spec.name: numbers[spec.name] for spec in specs}

    def encode_specs(self) -> bytes:
        """The specs of all tables as JSON, in an order that gives another store the same numbers."""
        with self._lock:
            return json.dumps([spec.model_dump() for spec in self.specs]).encode()

    def table(self, number: int) -> _native.Table:
        if number >= len(self.tables):
            raise RequestRefused(
                f"expected a table below {len(self.tables)}, in the order of DECLARE. Received: {number}"
            )
        return self.tables[number]

    @property
    def row_count(self) -> int:
        return sum(table.rows for table in list(self.tables))

    def status(self) -> dict[str, dict[str, int]]:
        """The size of each table, in the order of DECLARE."""
        return {
            spec.name: {"columns": t.columns, "rows": t.rows, "bytes": t.bytes, "not_admitted": t.counting}
            for spec, t in zip(list(self.specs), list(self.tables), strict=False)
        }

    @property
    def waited_s(self) -> float:
        """The seconds that threads have waited for locks of rows."""
        return sum(table.waited_ns for table in list(self.tables)) / 1e9

    # ---- rows

    def pull(self, part: TablePart, now: int, *, create: bool) -> TablePart:
        """Reads rows, into the buffer of the request where it has one."""
        table, expected = self.table(part.table), (len(part.ids), self.table(part.table).columns)
        if not part.rows.size:
            rows = np.empty(expected, np.float32)
            table.pull(part.ids, rows, now, create)
            return TablePart(part.table, NO_IDS, rows)
        if part.rows.shape != expected or not part.rows.flags.writeable:
            name = self.specs[part.table].name
            raise RequestRefused(f"table {name}: expected a buffer of shape {expected}. Received: {part.rows.shape}")
        table.pull(part.ids, part.rows, now, create)
        return TablePart(part.table, NO_IDS, NO_ROWS)

    def check_rows(self, parts: Sequence[TablePart], kind: str) -> None:
        """Raises RequestRefused if rows have a wrong shape or values that are not finite."""
        for part in parts:
            table, name = self.table(part.table), self.specs[part.table].name
            expected = (len(part.ids), table.columns)
            if part.rows.shape != expected:
                raise RequestRefused(f"table {name}: expected {kind}s of shape {expected}. Received: {part.rows.shape}")
            if (row := _native.not_finite(part.rows) if part.rows.size else -1) >= 0:
                values = part.rows[row].tolist()
                raise RequestRefused(f"table {name}: the {kind} of id {part.ids[row]} is not finite: {values}")

    def filter_admitted(self, parts: tuple[TablePart, ...]) -> tuple[TablePart, ...]:
        """Removes ids that were not seen often enough to get a row."""
        if not self._admits or all(self.specs[part.table].admit_after == 1 for part in parts):
            return parts
        return tuple(
            part
            if self.specs[part.table].admit_after == 1
            else _select_ids(part, self.table(part.table).find(part.ids))
            for part in parts
        )

    def has_push(self, message: PsMessage, touched: SlotMask) -> bool:
        """Whether all of this push is in the rows."""
        if not message.push_number:
            return False
        with self._lock:
            applied = self._applied_pushes.find_applied(message.sender, message.push_number, touched)
        return applied is not None and bool((applied >= touched).all())

    def claim_push(self, message: PsMessage, touched: SlotMask) -> tuple[TablePart, ...] | None:
        """Records a push; returns the parts that must be applied now. None: all are in the rows already."""
        if not message.push_number:
            return message.parts
        with self._lock:
            applied = self._applied_pushes.find_applied(message.sender, message.push_number, touched)
            self._applied_pushes.record(message.sender, message.push_number, touched)
        if applied is None:
            return message.parts
        if (applied >= touched).all():
            return None
        return select_slots(message.parts, 1 - applied)

    def apply_push(self, parts: Sequence[TablePart], rate: float, step: int, now: int) -> None:
        for part in parts:
            self.tables[part.table].push(part.ids, part.rows, rate, step, now)

    def accumulate_push(
        self, message: PsMessage, parts: Sequence[TablePart], rate: float, group: int, now: int
    ) -> bool:
        """Keeps a push until enough have come for one update; returns whether the update was made."""
        with self._lock:
            waiting = self._waiting.setdefault(group, _PendingUpdate())
            waiting.add(message, parts, rate)
            is_full = waiting.pushes >= self._grads_to_wait
            if is_full:
                del self._waiting[group]
            overdue = [
                self._waiting.pop(older) for older in sorted(self._waiting) if older < group - _MAX_PENDING_UPDATES
            ]
        for older in [*overdue, waiting] if is_full else overdue:
            self.apply_push(list(older.means()), older.rate, older.step, now)
        return is_full

    def flush(self, now: int) -> bool:
        """Applies the pushes that wait for more; returns whether there were any."""
        with self._lock:
            updates = [self._waiting[group] for group in sorted(self._waiting)]
            self._waiting = {}
        for update in updates:
            self.apply_push(list(update.means()), update.rate, update.step, now)
        return bool(updates)

    def insert_rows(self, part: TablePart, now: int) -> TablePart:
        """Inserts rows where there are none; returns those inserted."""
        return _select_ids(part, self.table(part.table).put(part.ids, part.rows, now))

    def load_rows(self, parts: Sequence[TablePart], now: int) -> None:
        """Loads rows from another ps: for each piece values, then state."""
        if len(parts) % 2:
            raise RequestRefused("LOAD: expected values and state of each piece")
        for values, state in zip(parts[::2], parts[1::2], strict=True):
            table, count = self.table(values.table), len(values.ids)
            fits = values.rows.shape == (count, table.columns) and state.rows.size == count * table.state_columns
            if not fits or values.table != state.table:
                raise RequestRefused(
                    f"LOAD: {values.rows.shape} and {state.rows.shape} do not fit table {values.table}"
                )
            table.load(values.ids, values.rows, state.rows.reshape(count, table.state_columns), now)

    def changed_rows(
        self, slots: SlotMask, since: int, stripes: range = range(_native.STRIPES)
    ) -> Iterator[tuple[TableSpec, tuple[TablePart, TablePart]]]:
        """Yields rows of these slots that changed since a generation, in pieces of values and state."""
        for number, table in enumerate(list(self.tables)):
            for stripe in stripes:
                ids, values, state = table.collect(stripe, slots, since)
                if len(ids):
                    yield self.specs[number], (TablePart(number, ids, values), TablePart(number, NO_IDS, state))

    def read_stripe(self, table_stripe: tuple[int, int], slots: SlotMask) -> tuple[TablePart, ...]:
        """The rows of these slots in a stripe of a table, without their state."""
        number, stripe = table_stripe
        ids, values, _ = self.table(number).collect(stripe, slots, 0)
        return (TablePart(number, ids, values),) if len(ids) else ()

    def begin_generation(self) -> int:
        with self._lock:
            self._generation += 1
            for table in self.tables:
                table.turn()
            return self._generation

    def drop_slots(self, slots: SlotMask) -> int:
        """Drops rows and applied pushes of these slots; returns the number of rows."""
        with self._lock:
            self._applied_pushes.forget(slots)
        return sum(table.remove_slots(slots) for table in list(self.tables))

    def expire_rows(self, now: int) -> int:
        """Drops rows that were not used for the ttl of their table; returns how many."""
        expiring = [
            (table, spec.ttl_s) for spec, table in zip(self.specs, list(self.tables), strict=False) if spec.ttl_s
        ]
        return sum(table.evict(int(now - ttl_s)) for table, ttl_s in expiring)

    # ---- applied pushes

    def pack_applied_pushes(self, slots: SlotMask) -> PackedPushes:
        with self._lock:
            return self._applied_pushes.pack(slots)

    def merge_applied_pushes(self, document: PackedPushes) -> None:
        """Adds pushes that another ps encoded. Raises ValueError if the document is malformed."""
        with self._lock:
            self._applied_pushes.merge_packed(document)


def touched_slots(parts: Sequence[TablePart]) -> SlotMask:
    """The slots of these ids."""
    slots = np.zeros(SLOTS, np.uint8)
    for part in parts:
        _native.touch(part.ids, slots)
    return slots


def select_slots(parts: tuple[TablePart, ...], slots: SlotMask) -> tuple[TablePart, ...]:
    """Removes the ids of other slots."""
    if not (touched_slots(parts) > slots).any():
        return parts
    return tuple(_select_ids(part, slots[_native.slots(part.ids)]) for part in parts)


def _select_ids(part: TablePart, mask: NDArray[np.uint8] | NDArray[np.bool_]) -> TablePart:
    positions = np.flatnonzero(mask)
    ids: Ids = part.ids[positions]
    rows: Floats = part.rows[positions]
    return TablePart(part.table, ids, rows)


def _describe_difference(declared: TableSpec, received: TableSpec) -> str:
    ours, theirs = declared.model_dump(), received.model_dump()
    return ", ".join(f"{key} {ours[key]} (not {theirs[key]})" for key in ours if ours[key] != theirs[key])
