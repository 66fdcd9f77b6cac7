"""Rows and their marks: what a ps owns, or its copy of what another owns. Every method is for any thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from elasticdl.ps import _native
from elasticdl.ps.marks import Document, Flags, Marks
from elasticdl.ps.slots import SLOTS
from elasticdl.ps.table import TableSpec, open_table
from elasticdl.ps.wire import NO_IDS, NO_ROWS, Floats, Ids, Message, Part

_LATE = 8  # updates after which no more pushes of an earlier one can be on their way to a copy


class Refused(Exception):
    """The request is wrong; the message says what was expected and what came."""


@dataclass(slots=True)
class _Waiting:
    """Pushes that will make one update."""

    pushes: int = 0
    rate: float = 0.0
    step: int = 0
    parts: list[Part] = field(default_factory=list)

    def add(self, message: Message, parts: Sequence[Part], rate: float) -> None:
        self.pushes += 1
        self.rate, self.step = rate, max(self.step, message.step)
        # Of our own: once the push is answered its memory may be the sender's again.
        self.parts += [Part(part.table, part.ids.copy(), part.rows.copy()) for part in parts]

    def means(self) -> Iterator[Part]:
        """For each table the mean over the pushes, by id."""
        for table in dict.fromkeys(part.table for part in self.parts):
            mine = [part for part in self.parts if part.table == table]
            ids, inverse = _native.unique(np.concatenate([part.ids for part in mine]))
            sums = np.empty((len(ids), mine[0].rows.shape[1]), np.float32)
            _native.segment_sum(np.concatenate([part.rows for part in mine]), inverse, sums)
            sums /= np.float32(self.pushes)
            yield Part(table, ids, sums)


class Store:
    """`admits`: whether ids must be seen several times before they get a row, where their table says so."""

    def __init__(self, seed: int, budget: _native.Budget, grads_to_wait: int = 1, *, admits: bool = True) -> None:
        self._seed = seed
        self._budget = budget
        self._grads_to_wait = grads_to_wait
        self._admits = admits
        self._lock = threading.Lock()  # of all that follows
        self.specs: list[TableSpec] = []
        self.tables: list[_native.Table] = []
        self._generation = 1  # of every table
        self._marks = Marks()
        self._waiting: dict[int, _Waiting] = {}  # by the clock at which they came

    def declare(self, text: bytes) -> dict[str, int]:
        """Make the tables of a model, where they are new; the number of each by name. All must mean the same ones."""
        try:
            wanted = [TableSpec.model_validate(one) for one in json.loads(text)]
        except (ValidationError, ValueError, TypeError) as exc:
            raise Refused(f"tables: {exc}") from exc
        with self._lock:
            known = {spec.name: number for number, spec in enumerate(self.specs)}
            for spec in wanted:
                if spec.name not in known:
                    known[spec.name] = len(self.specs)
                    made = spec if self._admits else spec.model_copy(update={"admit_after": 1})
                    table = open_table(made, self._seed, self._budget)
                    while table.generation < self._generation:  # as old as the others: one number is for all of them
                        table.turn()
                    self.tables.append(table)
                    self.specs.append(spec)
                elif (here := self.specs[known[spec.name]]) != spec:
                    raise Refused(f"table {spec.name}: expected {_differing(here, spec)}, as others declared it")
            return {spec.name: known[spec.name] for spec in wanted}

    def declared(self) -> bytes:
        """All tables in their order, for a store that shall number them in the same way."""
        with self._lock:
            return json.dumps([spec.model_dump() for spec in self.specs]).encode()

    def table(self, number: int) -> _native.Table:
        if number >= len(self.tables):
            raise Refused(f"expected a table below {len(self.tables)}, in the order of DECLARE. Received: {number}")
        return self.tables[number]

    @property
    def rows(self) -> int:
        return sum(table.rows for table in list(self.tables))

    def status(self) -> dict[str, dict[str, int]]:
        """Of each table, in the order of DECLARE."""
        return {
            spec.name: {"columns": t.columns, "rows": t.rows, "bytes": t.bytes, "not_admitted": t.counting}
            for spec, t in zip(list(self.specs), list(self.tables), strict=False)
        }

    @property
    def waited_s(self) -> float:
        """For so long threads have waited for the rows of another's batch."""
        return sum(table.waited_ns for table in list(self.tables)) / 1e9

    # ---- rows

    def pull(self, part: Part, now: int, *, create: bool) -> Part:
        """The rows; none where there was room for them in the request."""
        table, expected = self.table(part.table), (len(part.ids), self.table(part.table).columns)
        if not part.rows.size:
            rows = np.empty(expected, np.float32)
            table.pull(part.ids, rows, now, create)
            return Part(part.table, NO_IDS, rows)
        if part.rows.shape != expected or not part.rows.flags.writeable:
            name = self.specs[part.table].name
            raise Refused(f"table {name}: expected room of shape {expected}. Received: {part.rows.shape}")
        table.pull(part.ids, part.rows, now, create)
        return Part(part.table, NO_IDS, NO_ROWS)

    def check(self, parts: Sequence[Part], what: str) -> None:
        """Refuse rows that are of another shape or not finite."""
        for part in parts:
            table, name = self.table(part.table), self.specs[part.table].name
            expected = (len(part.ids), table.columns)
            if part.rows.shape != expected:
                raise Refused(f"table {name}: expected {what}s of shape {expected}. Received: {part.rows.shape}")
            if (row := _native.not_finite(part.rows) if part.rows.size else -1) >= 0:
                found = part.rows[row].tolist()
                raise Refused(f"table {name}: the {what} of id {part.ids[row]} is not finite: {found}")

    def admitted(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Without ids that were not seen often enough to have a row."""
        if not self._admits or all(self.specs[part.table].admit_after == 1 for part in parts):
            return parts
        return tuple(
            part if self.specs[part.table].admit_after == 1 else _some(part, self.table(part.table).find(part.ids))
            for part in parts
        )

    def has(self, message: Message, touched: Flags) -> bool:
        """Whether all of this push is in the rows."""
        if not message.batch:
            return False
        with self._lock:
            having = self._marks.having(message.sender, message.batch, touched)
        return having is not None and bool((having >= touched).all())

    def take(self, message: Message, touched: Flags) -> tuple[Part, ...] | None:
        """Mark the slots of this push as having it. The parts that must be applied now; None: all are in the rows."""
        if not message.batch:
            return message.parts
        with self._lock:
            having = self._marks.having(message.sender, message.batch, touched)
            self._marks.mark(message.sender, message.batch, touched)
        if having is None:
            return message.parts
        if (having >= touched).all():
            return None
        return only(message.parts, 1 - having)

    def apply(self, parts: Sequence[Part], rate: float, step: int, now: int) -> None:
        for part in parts:
            self.tables[part.table].push(part.ids, part.rows, rate, step, now)

    def gather(self, message: Message, parts: Sequence[Part], rate: float, group: int, now: int) -> bool:
        """Keep a push until enough have come for one update. Whether they have, and it was made."""
        with self._lock:
            waiting = self._waiting.setdefault(group, _Waiting())
            waiting.add(message, parts, rate)
            is_full = waiting.pushes >= self._grads_to_wait
            if is_full:
                del self._waiting[group]
            late = [self._waiting.pop(one) for one in sorted(self._waiting) if one < group - _LATE]
        for one in [*late, waiting] if is_full else late:
            self.apply(list(one.means()), one.rate, one.step, now)
        return is_full

    def flush(self, now: int) -> bool:
        """Apply what waits for more pushes. Whether there was something."""
        with self._lock:
            waiting = [self._waiting[group] for group in sorted(self._waiting)]
            self._waiting = {}
        for one in waiting:
            self.apply(list(one.means()), one.rate, one.step, now)
        return bool(waiting)

    def put(self, part: Part, now: int) -> Part:
        """Make rows where there are none; those that were made."""
        return _some(part, self.table(part.table).put(part.ids, part.rows, now))

    def load(self, parts: Sequence[Part], now: int) -> None:
        """Rows as they are at another ps: for each piece values, then state."""
        if len(parts) % 2:
            raise Refused("LOAD: expected values and state of each piece")
        for values, state in zip(parts[::2], parts[1::2], strict=True):
            table, count = self.table(values.table), len(values.ids)
            fits = values.rows.shape == (count, table.columns) and state.rows.size == count * table.state_columns
            if not fits or values.table != state.table:
                raise Refused(f"LOAD: {values.rows.shape} and {state.rows.shape} do not fit table {values.table}")
            table.load(values.ids, values.rows, state.rows.reshape(count, table.state_columns), now)

    def changed(
        self, slots: Flags, since: int, stripes: range = range(_native.STRIPES)
    ) -> Iterator[tuple[TableSpec, tuple[Part, Part]]]:
        """Rows of these slots that changed in generation `since` or later, a piece at a time: values, then state."""
        for number, table in enumerate(list(self.tables)):
            for stripe in stripes:
                ids, values, state = table.collect(stripe, slots, since)
                if len(ids):
                    yield self.specs[number], (Part(number, ids, values), Part(number, NO_IDS, state))

    def rows_of(self, place: tuple[int, int], slots: Flags) -> tuple[Part, ...]:
        """The rows of these slots in a stripe of a table, without their state."""
        number, stripe = place
        ids, values, _ = self.table(number).collect(stripe, slots, 0)
        return (Part(number, ids, values),) if len(ids) else ()

    def turn(self) -> int:
        with self._lock:
            self._generation += 1
            for table in self.tables:
                table.turn()
            return self._generation

    def forget(self, slots: Flags) -> int:
        """Rows and marks of these slots; how many rows that were."""
        with self._lock:
            self._marks.forget(slots)
        return sum(table.remove_slots(slots) for table in list(self.tables))

    def expire(self, now: int) -> int:
        """Drop rows that were not used for longer than their table says."""
        kept = [(table, spec.ttl_s) for spec, table in zip(self.specs, list(self.tables), strict=False) if spec.ttl_s]
        return sum(table.evict(int(now - ttl_s)) for table, ttl_s in kept)

    # ---- marks

    def marks(self, slots: Flags) -> Document:
        with self._lock:
            return self._marks.dump(slots)

    def load_marks(self, document: Document) -> None:
        """Raises ValueError where it is none."""
        with self._lock:
            self._marks.load(document)


def touched(parts: Sequence[Part]) -> Flags:
    """The slots these ids lie in."""
    found = np.zeros(SLOTS, np.uint8)
    for part in parts:
        _native.touch(part.ids, found)
    return found


def only(parts: tuple[Part, ...], slots: Flags) -> tuple[Part, ...]:
    """The ids that lie in these slots."""
    if not (touched(parts) > slots).any():
        return parts
    return tuple(_some(part, slots[_native.slots(part.ids)]) for part in parts)


def _some(part: Part, wanted: NDArray[np.uint8] | NDArray[np.bool_]) -> Part:
    which = np.flatnonzero(wanted)
    ids: Ids = part.ids[which]
    rows: Floats = part.rows[which]
    return Part(part.table, ids, rows)


def _differing(here: TableSpec, other: TableSpec) -> str:
    ours, theirs = here.model_dump(), other.model_dump()
    return ", ".join(f"{key} {ours[key]} (not {theirs[key]})" for key in ours if ours[key] != theirs[key])
