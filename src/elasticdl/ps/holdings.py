"""What one ps holds: tables, the slots that are its own, and which pushes it has applied. No sockets here."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from elasticdl.ps import _native
from elasticdl.ps import counted as counting
from elasticdl.ps.counted import Counted
from elasticdl.ps.gate import Gate
from elasticdl.ps.slots import SLOTS, SlotMap
from elasticdl.ps.table import TableSpec, open_table
from elasticdl.ps.wire import NO_IDS, Kind, Message, Part, Status
from elasticdl.spec import PsId

Flags = NDArray[np.uint8]


class Refused(Exception):
    """The request is wrong; the message says what was expected and what came."""


class Holdings:
    """Every method may be called from any thread."""

    def __init__(
        self, name: PsId, seed: int, memory_limit: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._seed = seed
        self._budget = _native.Budget(memory_limit)
        self._clock = clock
        self._gate = Gate()
        self._lock = threading.Lock()  # of all that follows
        self.specs: list[TableSpec] = []
        self._tables: list[_native.Table] = []
        self._generation = 1  # of every table
        self._counted: dict[counting.Key, Counted] = {}
        self.map = SlotMap(0, (PsId(""),) * SLOTS)
        self._held = np.zeros(SLOTS, np.uint8)
        self.applied = 0  # pushes
        self.repeated = 0

    def set_map(self, slot_map: SlotMap) -> None:
        with self._lock:
            if slot_map.version > self.map.version:
                self.map = slot_map
                self._held = np.array([owner == self.name for owner in slot_map.owner], np.uint8)

    def answer(self, message: Message) -> Message:
        """The reply to a request that was decoded and has the right token."""
        try:
            match message.kind:
                case Kind.PULL | Kind.LOOK | Kind.PUSH:
                    with self._gate.passing():
                        return self._push(message) if message.kind is Kind.PUSH else self._pull(message)
                case Kind.DECLARE:
                    return self._reply(message, text=json.dumps(self.declare(message.text)).encode())
                case Kind.STATUS:
                    return self._reply(message, text=json.dumps(self.status()).encode())
                case Kind.LOAD:
                    return self._load(message)
                case Kind.TAKE:
                    return self._take(message)
            raise Refused(f"a ps does not answer {message.kind.name}")
        except (Refused, _native.MemoryLimit) as exc:
            return self._reply(message, status=Status.REFUSED, text=str(exc).encode())

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
                    table = open_table(spec, self._seed, self._budget)
                    while table.generation < self._generation:  # as old as the others: one number means all of them
                        table.turn()
                    self._tables.append(table)
                    self.specs.append(spec)
                elif (here := self.specs[known[spec.name]]) != spec:
                    raise Refused(f"table {spec.name}: expected {_differing(here, spec)}, as others declared it")
            return {spec.name: known[spec.name] for spec in wanted}

    def status(self) -> dict[str, Any]:
        tables = zip(list(self.specs), list(self._tables), strict=False)
        return {
            "name": self.name,
            "map": self.map.version,
            "slots": int(self._held.sum()),
            "applied": self.applied,
            "repeated": self.repeated,
            "bytes": self._budget.used,
            "tables": {s.name: {"rows": t.rows, "bytes": t.bytes, "not_admitted": t.counting} for s, t in tables},
        }

    # ---- slots that move away, see moving.py

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Nobody pulls or pushes meanwhile."""
        with self._gate.closed():
            yield

    def turn(self) -> int:
        """From here on changes belong to a new generation; its number."""
        with self._lock:
            self._generation += 1
            for table in self._tables:
                table.turn()
            return self._generation

    def changed(self, slots: Flags, since: int) -> Iterator[tuple[TableSpec, tuple[Part, Part]]]:
        """Rows of these slots that changed in generation `since` or later, a piece at a time: values, then state."""
        for number, table in enumerate(list(self._tables)):
            for stripe in range(_native.STRIPES):
                ids, values, state = table.collect(stripe, slots, since)
                if len(ids):
                    yield self.specs[number], (Part(number, ids, values), Part(number, NO_IDS, state))

    def hand_over(self, slot_map: SlotMap) -> bytes:
        """What the next holder must know; `slot_map` is in force here from now on."""
        self.set_map(slot_map)
        with self._lock:
            document = {"map": slot_map.document(), "counted": counting.dump(self._counted)}
        return json.dumps(document).encode()

    def forget(self, slots: Flags) -> int:
        return sum(table.remove_slots(slots) for table in list(self._tables))

    # ---- inside

    def _pull(self, message: Message) -> Message:
        if self._is_elsewhere(message):
            return self._moved(message)
        parts, now = [], self._now()
        for part in message.parts:
            table = self._table(part.table)
            rows = np.empty((len(part.ids), table.columns), np.float32)
            table.pull(part.ids, rows, now, message.kind is Kind.PULL)
            parts.append(Part(part.table, NO_IDS, rows))
        return self._reply(message, parts=tuple(parts))

    def _push(self, message: Message) -> Message:
        if not math.isfinite(message.rate):
            raise Refused(f"learning rate: expected a finite number. Received: {message.rate}")
        for part in message.parts:
            self._check_gradients(part)
        key = (message.origin, message.sender)
        with self._lock:  # before asking whose slots they are: what was applied here went with them
            counted = self._counted.setdefault(key, Counted())
            counted.settle(message.settled)
            is_repeated = message.batch > 0 and counted.has(message.batch)
            self.repeated += is_repeated
        if is_repeated:
            return self._reply(message)
        if self._is_elsewhere(message):
            return self._moved(message)
        with self._lock:
            if message.batch and not counted.count(message.batch):
                self.repeated += 1
                return self._reply(message)
            self.applied += 1
        now = self._now()
        for part in message.parts:
            self._table(part.table).push(part.ids, part.rows, message.rate, message.step, now)
        return self._reply(message)

    def _load(self, message: Message) -> Message:
        parts = message.parts
        if len(parts) % 2:
            raise Refused("LOAD: expected values and state of each piece")
        for values, state in zip(parts[::2], parts[1::2], strict=True):
            table, count = self._table(values.table), len(values.ids)
            fits = values.rows.shape == (count, table.columns) and state.rows.size == count * table.state_columns
            if not fits or values.table != state.table:
                raise Refused(f"LOAD: {values.rows.shape} and {state.rows.shape} do not fit table {values.table}")
            table.load(values.ids, values.rows, state.rows.reshape(count, table.state_columns), self._now())
        return self._reply(message)

    def _take(self, message: Message) -> Message:
        try:
            document = json.loads(message.text)
            counted, slot_map = counting.load(document["counted"]), SlotMap.load(document["map"])
        except (ValueError, KeyError, TypeError) as exc:
            raise Refused(f"TAKE: expected a map and what was counted: {exc}") from exc
        with self._lock:
            for key, one in counted.items():
                self._counted.setdefault(key, Counted()).merge(one)
        self.set_map(slot_map)
        return self._reply(message)

    def _check_gradients(self, part: Part) -> None:
        table, name = self._table(part.table), self.specs[part.table].name
        expected = (len(part.ids), table.columns)
        if part.rows.shape != expected:
            raise Refused(f"table {name}: expected gradients of shape {expected}. Received: {part.rows.shape}")
        if (row := _native.not_finite(part.rows) if part.rows.size else -1) >= 0:
            raise Refused(f"table {name}: the gradient of id {part.ids[row]} is not finite: {part.rows[row].tolist()}")

    def _table(self, number: int) -> _native.Table:
        if number >= len(self._tables):
            raise Refused(f"expected a table below {len(self._tables)}, in the order of DECLARE. Received: {number}")
        return self._tables[number]

    def _is_elsewhere(self, message: Message) -> bool:
        """Whether the sender's map is another one, and what it asks for is not all here."""
        if message.version == self.map.version:
            return False
        return any(_native.foreign(part.ids, self._held) for part in message.parts)

    def _moved(self, message: Message) -> Message:
        return self._reply(message, status=Status.MOVED, text=json.dumps(self.map.document()).encode())

    def _reply(
        self, message: Message, *, status: Status = Status.OK, parts: tuple[Part, ...] = (), text: bytes = b""
    ) -> Message:
        return Message(Kind.REPLY, message.request, self.map.version, status, parts=parts, text=text)

    def _now(self) -> int:
        return int(self._clock())


def flags(slots: Sequence[int]) -> Flags:
    """These slots, as the native core takes them."""
    found = np.zeros(SLOTS, np.uint8)
    found[list(slots)] = 1
    return found


def _differing(here: TableSpec, other: TableSpec) -> str:
    ours, theirs = here.model_dump(), other.model_dump()
    return ", ".join(f"{key} {ours[key]} (not {theirs[key]})" for key in ours if ours[key] != theirs[key])
