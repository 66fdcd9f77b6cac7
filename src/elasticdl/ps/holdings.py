"""What one ps holds: rows of its own slots, copies of those of others, and the terms of a push. No sockets here."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elasticdl.ps import _native
from elasticdl.ps.counter import Counter
from elasticdl.ps.gate import Gate
from elasticdl.ps.marks import Document, Flags
from elasticdl.ps.slots import SLOTS, SlotMap, number_of
from elasticdl.ps.store import Refused, Store, only, touched
from elasticdl.ps.table import TableSpec
from elasticdl.ps.terms import ANY, BUCKETS, Terms, bucket, staleness
from elasticdl.ps.wire import NO_IDS, Ids, Kind, Message, Part, Status
from elasticdl.spec import PsId

_LAST = 1 << 62  # above every number, clock and step


class Mirror(NamedTuple):
    """The ps that holds a copy of all our slots."""

    target: PsId
    address: str


class Answer(NamedTuple):
    """`reply` may go out once `mirror` has answered `forward`; the caller then lets `done` be called."""

    reply: Message
    mirror: Mirror | None = None
    forward: Message | None = None


class Holdings:
    """Every method may be called from any thread."""

    def __init__(
        self,
        name: PsId,
        seed: int,
        memory_limit: int = 0,
        *,
        terms: Terms = ANY,
        counter: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._seed = seed
        self._budget = _native.Budget(memory_limit)
        self._terms = terms
        self._clock = clock
        self._gate = Gate()
        self._copy_gate = Gate()  # of what is not our own: never waits for another ps
        self._own = Store(seed, self._budget, terms.grads_to_wait)
        self._counter = Counter(counter) if counter else None
        self._lock = threading.Lock()  # of all that follows
        self._copies: dict[int, _Copy] = {}
        self.map = SlotMap(0, (PsId(""),) * SLOTS)
        self._held = np.zeros(SLOTS, np.uint8)
        self.mirror: Mirror | None = None
        self.mirror_failure = ""  # why the copy elsewhere is no longer whole
        self.clock = 1  # one more with every update
        self.requests = 0  # answered
        self.applied = 0  # pushes
        self.repeated = 0
        self.refused = 0
        self.stale = 0
        self._staleness = [0] * BUCKETS

    # ---- requests

    def answer(self, message: Message) -> Message:
        """The reply to a request that was decoded and has the right token, where no copy must be waited for."""
        answer = self.serve(message)
        assert answer is not None
        if answer.mirror:
            self.done()
        return answer.reply

    def serve(self, message: Message, *, wait: bool = True) -> Answer | None:
        """Do what a request asks for. None: the gate is closed, and the caller does not want to wait for it."""
        try:
            if message.kind is Kind.STATUS:
                return Answer(self._reply(message, text=json.dumps(self.status()).encode()))
            gate = self._copy_gate if message.copy_of else self._gate
            if not gate.enter(wait=wait):
                return None
            answer = None
            try:
                answer = Answer(self._serve_copy(message)) if message.copy_of else self._serve(message)
            finally:
                if answer is None or answer.mirror is None:
                    gate.leave()
            return answer
        except (Refused, _native.MemoryLimit) as exc:
            with self._lock:
                self.refused += 1
            return Answer(self._reply(message, status=Status.REFUSED, text=str(exc).encode()))

    @property
    def is_paired(self) -> bool:
        """Whether another ps waits for us, or we for it: then no thread may wait for the gate."""
        return self.mirror is not None or bool(self._copies)

    def done(self) -> None:
        """The copy has what was forwarded, or nobody waits for it any more."""
        self._gate.leave()

    def declare(self, text: bytes) -> dict[str, int]:
        """Make the tables of a model, where they are new; the number of each by name. All must mean the same ones."""
        return self._own.declare(text)

    @property
    def specs(self) -> list[TableSpec]:
        return self._own.specs

    def set_map(self, slot_map: SlotMap) -> None:
        with self._lock:
            if slot_map.version > self.map.version:
                self._set_map(slot_map)

    def status(self) -> dict[str, Any]:
        tables = zip(list(self._own.specs), list(self._own.tables), strict=False)
        return {
            "name": self.name,
            "map": self.map.version,
            "slots": int(self._held.sum()),
            "applied": self.applied,
            "repeated": self.repeated,
            "bytes": self._budget.used,
            "mirror": self.mirror.target if self.mirror else "",
            "mirror_failure": self.mirror_failure,
            "copies": {f"ps-{number - 1}": copy.store.rows for number, copy in list(self._copies.items())},
            "tables": {s.name: {"rows": t.rows, "bytes": t.bytes, "not_admitted": t.counting} for s, t in tables},
        }

    def beat(self) -> dict[str, Any]:
        """The values of a PsBeat, as far as they are known here."""
        stores = [self._own, *(copy.store for copy in list(self._copies.values()))]
        with self._lock:
            return {
                "map_version": self.map.version,
                "rows": self._own.rows,
                "bytes": self._budget.used,
                "requests": self.requests,
                "applied": self.applied,
                "repeated": self.repeated,
                "refused": self.refused,
                "lock_wait_s": self._gate.waited_s + sum(store.waited_s for store in stores),
                "staleness": list(self._staleness),
                "clock": self.clock,
            }

    # ---- slots that move away, see moving.py, and cuts

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Nobody pulls or pushes meanwhile; what was pushed is in the rows, here and in the copy elsewhere."""
        with self._gate.closed():
            if self._own.flush(self._now()):
                with self._lock:
                    self._tick()
            yield

    @property
    def held(self) -> Flags:
        """Our slots."""
        return self._held

    def turn(self) -> int:
        """From here on changes belong to a new generation; its number."""
        return self._own.turn()

    def changed(self, slots: Flags, since: int) -> Iterator[tuple[TableSpec, tuple[Part, Part]]]:
        """Rows of these slots that changed in generation `since` or later, a piece at a time: values, then state."""
        return self._own.changed(slots, since)

    def load(self, parts: Sequence[Part]) -> None:
        """Rows as `changed` gave them, table numbers being ours."""
        self._own.load(parts, self._now())

    def marks(self, slots: Flags) -> Document:
        """Which pushes are in the rows of these slots."""
        return self._own.marks(slots)

    def load_marks(self, document: Document) -> None:
        self._own.load_marks(document)

    def forget(self, slots: Flags) -> int:
        """Drop rows and marks of these slots."""
        return self._own.forget(slots)

    def declared(self) -> bytes:
        """All our tables in their order, as DECLARE has them."""
        return self._own.declared()

    # ---- copies, see mirroring.py

    def set_mirror(self, mirror: Mirror | None) -> None:
        """From the next push on its answer waits for this one. None: for nobody."""
        with self._lock:
            self.mirror, self.mirror_failure = mirror, ""

    def break_mirror(self, mirror: Mirror, why: str) -> None:
        """The copy is not whole any more: pushes go on without it, and the master hears of it."""
        with self._lock:
            if self.mirror == mirror:
                self.mirror, self.mirror_failure = None, f"{mirror.target}: {why}"

    def drop_mirror(self, of: PsId) -> None:
        """Forget our copy of what another ps owns."""
        with self._copy_gate.closed():
            self._copies.pop(number_of(of) + 1, None)

    def promote(self, lost: PsId, slot_map: SlotMap) -> int:
        """The copies of a lost ps become ours, as `slot_map` says; how many rows that are."""
        if self.mirror and self.mirror.target == lost:
            self.set_mirror(None)
        now, rows = self._now(), 0
        with self._gate.closed(), self._copy_gate.closed():
            copy = self._copies.pop(number_of(lost) + 1, None)
            if copy is not None:
                copy.store.flush(now)
                ours = copy.slots & _owned(slot_map, self.name) & (1 - self._held)
                self._own.forget(ours)
                self._own.load_marks(copy.store.marks(ours))
                numbers = self.declare(copy.store.declared())
                for stripe in range(_native.STRIPES):
                    some = np.zeros(SLOTS, np.uint8)
                    some[stripe :: _native.STRIPES] = ours[stripe :: _native.STRIPES]
                    for spec, pieces in copy.store.changed(some, 0, range(stripe, stripe + 1)):
                        rows += len(pieces[0].ids)
                        self._own.load([piece._replace(table=numbers[spec.name]) for piece in pieces], now)
                    copy.store.forget(some)  # at once: there may be no room for all of them twice
            self.set_map(slot_map)
        return rows

    # ---- inside

    def _serve(self, message: Message) -> Answer:
        match message.kind:
            case Kind.PULL | Kind.LOOK:
                return Answer(self._pull(message))
            case Kind.PUSH:
                return self._push(message)
            case Kind.PUT:
                self._own.check(message.parts, "value")
                if (touched(message.parts) > self._held).any():
                    return Answer(self._moved(message))
                for part in message.parts:
                    self._own.put(part, self._now())
                return self._mirrored(message)
            case Kind.DECLARE:
                text = json.dumps(self.declare(message.text)).encode()
                return self._mirrored(message._replace(text=self._own.declared()), text=text)
            case Kind.LOAD:
                self._own.load(message.parts, self._now())
                return self._mirrored(message)
            case Kind.TAKE:
                document, slot_map = _marks(message), _map(message)
                if slot_map.version <= self.map.version:
                    raise Refused(f"TAKE: expected a map above {self.map.version}. Received: {slot_map.version}")
                _load_marks(self._own, document)
                self.set_map(slot_map)
                return self._mirrored(message)
            case Kind.FORGET:
                slots = flags(_slots(message.parts[0].ids if message.parts else NO_IDS))
                if (slots & self._held).any():
                    raise Refused("FORGET: expected slots that are not mine")
                self._own.forget(slots)
                return self._mirrored(message)
        raise Refused(f"a ps does not answer {message.kind.name}")

    def _pull(self, message: Message) -> Message:
        if message.version != self.map.version and any(_native.foreign(part.ids, self._held) for part in message.parts):
            return self._moved(message)
        clock, now = self.clock, self._now()  # first: the values are as new as the clock, or newer
        create = message.kind is Kind.PULL
        parts = tuple(self._own.pull(part, now, create=create) for part in message.parts)
        return self._reply(message, parts=parts)._replace(clock=clock, transport=message.transport)

    def _push(self, message: Message) -> Answer:
        _check_numbers(message)
        self._own.check(message.parts, "gradient")
        slots = touched(message.parts)
        if (slots > self._held).any():
            return Answer(self._moved(message))
        message = message._replace(parts=self._own.admitted(message.parts))
        if self._terms.grads_to_wait > 1:
            with self._lock:  # an update that is being made is one that every later push must have seen
                return self._push_on_terms(message, slots)
        return self._push_on_terms(message, slots)

    def _push_on_terms(self, message: Message, slots: Flags) -> Answer:
        age = staleness(self.clock, message.clock)
        group, lock = self.clock, contextlib.nullcontext() if self._terms.grads_to_wait > 1 else self._lock
        if self._terms.is_stale(age) and not self._own.has(message, slots):
            with lock:
                self.stale += 1
            return Answer(self._reply(message, status=Status.STALE))
        parts = self._own.take(message, slots)
        if parts is None:
            with lock:
                self.repeated += 1
            return self._mirrored(message._replace(clock=group))
        rate, now, is_update = self._terms.rate(message.rate, age), self._now(), True
        if self._terms.grads_to_wait > 1:
            is_update = self._own.gather(message, parts, rate, group, now)
        else:
            self._own.apply(parts, rate, message.step, now)
        with lock:
            self.applied += 1
            self._staleness[bucket(age)] += 1
            self.clock += is_update
            if self._counter:
                self._counter.set(self.applied, self.clock)
        return self._mirrored(message._replace(clock=group, rate=rate))

    def _tick(self) -> None:
        self.clock += 1
        if self._counter:
            self._counter.set(self.applied, self.clock)

    def _mirrored(self, message: Message, text: bytes = b"") -> Answer:
        """Done here; the copy must have it, too. Inside the gate: no mirror comes or is complete meanwhile."""
        reply, mirror = self._reply(message, text=text), self.mirror
        if mirror is None:
            return Answer(reply)
        return Answer(reply, mirror, message._replace(copy_of=number_of(self.name) + 1))

    def _serve_copy(self, message: Message) -> Message:
        """What the owner of a copy has done with its rows is done with ours."""
        copy, now = self._copies.get(message.copy_of), self._now()
        if message.kind is Kind.DECLARE:
            if copy is None:
                copy = _Copy(Store(self._seed, self._budget, self._terms.grads_to_wait, admits=False))
                copy = self._copies.setdefault(message.copy_of, copy)
            return self._reply(message, text=json.dumps(copy.store.declare(message.text)).encode())
        if copy is None:  # promoted or dropped: its owner is no owner any more
            return self._moved(message)
        match message.kind:
            case Kind.PUSH:
                _check_numbers(message)
                copy.store.check(message.parts, "gradient")
                self._push_copy(copy, message, now)
            case Kind.PUT:
                copy.store.check(message.parts, "value")
                for part in message.parts:
                    copy.store.put(part, now)
            case Kind.LOAD:
                copy.store.load(message.parts, now)
            case Kind.TAKE:
                document = _marks(message)
                _load_marks(copy.store, document)
                copy.slots |= flags(_slots(document[1 : 1 + int(document[0])]))
            case Kind.FORGET:
                slots = flags(_slots(message.parts[0].ids if message.parts else NO_IDS))
                copy.slots &= 1 - slots
                copy.store.forget(slots)
            case _:
                raise Refused(f"a copy does not answer {message.kind.name}")
        return self._reply(message)

    def _push_copy(self, copy: _Copy, message: Message, now: int) -> None:
        """Slots that are not copied yet come with their rows later."""
        message = message._replace(parts=only(message.parts, copy.slots))
        parts = copy.store.take(message, touched(message.parts))
        if parts is None:
            return
        if self._terms.grads_to_wait > 1:
            copy.store.gather(message, parts, message.rate, message.clock, now)
        else:
            copy.store.apply(parts, message.rate, message.step, now)

    def _set_map(self, slot_map: SlotMap) -> None:
        self.map = slot_map
        self._held = _owned(slot_map, self.name)

    def _moved(self, message: Message) -> Message:
        return self._reply(message, status=Status.MOVED, text=json.dumps(self.map.document()).encode())

    def _reply(
        self, message: Message, *, status: Status = Status.OK, parts: tuple[Part, ...] = (), text: bytes = b""
    ) -> Message:
        self.requests += 1
        return Message(Kind.REPLY, message.request, self.map.version, status, clock=self.clock, parts=parts, text=text)

    def _now(self) -> int:
        return int(self._clock())


class _Copy:
    """What we hold for another ps, and the slots that are whole."""

    __slots__ = ("slots", "store")

    def __init__(self, store: Store) -> None:
        self.store = store
        self.slots = np.zeros(SLOTS, np.uint8)


def flags(slots: Sequence[int]) -> Flags:
    """These slots, as the native core takes them."""
    found = np.zeros(SLOTS, np.uint8)
    found[list(slots)] = 1
    return found


def _owned(slot_map: SlotMap, name: PsId) -> Flags:
    return np.array([owner == name for owner in slot_map.owner], np.uint8)


def _check_numbers(message: Message) -> None:
    if not math.isfinite(message.rate):
        raise Refused(f"learning rate: expected a finite number. Received: {message.rate}")
    if max(message.batch, message.clock, message.step) >= _LAST:
        raise Refused(f"number, clock, step: expected less than {_LAST}. Received: {message[7:10]}")


def _map(message: Message) -> SlotMap:
    try:
        return SlotMap.load(json.loads(message.text))
    except (ValueError, KeyError, TypeError) as exc:
        raise Refused(f"{message.kind.name}: expected a map: {exc}") from exc


def _marks(message: Message) -> Document:
    if len(message.parts) != 1:
        raise Refused(f"TAKE: expected the marks as ids of one part. Received: {len(message.parts)} parts")
    return message.parts[0].ids


def _load_marks(store: Store, document: Document) -> None:
    try:
        store.load_marks(document)
    except ValueError as exc:
        raise Refused(f"TAKE: {exc}") from exc


def _slots(ids: Ids) -> list[int]:
    slots: list[int] = ids.tolist()
    if not all(0 <= slot < SLOTS for slot in slots):
        raise Refused(f"expected slots below {SLOTS}")
    return slots
