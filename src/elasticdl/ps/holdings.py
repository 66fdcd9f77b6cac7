"""What one ps holds: rows of its own slots, copies of those of others, and the terms of a push. No sockets here."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.ps import _native, requests
from elasticdl.ps.answer import Answer, Mirror
from elasticdl.ps.copies import Copies, NoCopy
from elasticdl.ps.gate import Gate
from elasticdl.ps.marks import Document, Flags, flags
from elasticdl.ps.slots import SLOTS, SlotMap, number_of
from elasticdl.ps.store import Refused, Store, touched
from elasticdl.ps.table import TableSpec
from elasticdl.ps.tally import Tally
from elasticdl.ps.terms import ANY, Terms, staleness
from elasticdl.ps.wire import Kind, Message, Part, Status
from elasticdl.spec import PsId


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
        self._budget = _native.Budget(memory_limit)
        self._terms = terms
        self._clock = clock
        self._gate = Gate()
        self._own = Store(seed, self._budget, terms.grads_to_wait)
        self._copies = Copies(seed, self._budget, terms.grads_to_wait)
        self._tally = Tally(counter)
        self._lock = threading.Lock()  # of all that follows
        self.map = SlotMap(0, (PsId(""),) * SLOTS)
        self._held = np.zeros(SLOTS, np.uint8)
        self.mirror: Mirror | None = None
        self.mirror_failure = ""  # why the copy elsewhere is no longer whole

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
            gate = self._copies.gate if message.copy_of else self._gate
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
            self._tally.count(refused=1)
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
                self.map, self._held = slot_map, flags(slot_map.slots_of(self.name))

    def status(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "map": self.map.version,
            "slots": int(self._held.sum()),
            "applied": self.applied,
            "repeated": self._tally.repeated,
            "bytes": self._budget.used,
            "mirror": self.mirror.target if self.mirror else "",
            "mirror_failure": self.mirror_failure,
            "copies": self._copies.rows,
            "tables": self._own.status(),
        }

    def beat(self) -> dict[str, Any]:
        """The values of a PsBeat, as far as they are known here."""
        return self._tally.values() | {
            "map_version": self.map.version,
            "rows": self._own.rows,
            "bytes": self._budget.used,
            "lock_wait_s": self._gate.waited_s + self._own.waited_s + self._copies.waited_s,
        }

    @property
    def applied(self) -> int:
        return self._tally.applied

    @property
    def clock(self) -> int:
        """One more with every update."""
        return self._tally.clock

    @clock.setter
    def clock(self, clock: int) -> None:
        self._tally.clock = clock

    # ---- slots that move away, see moving.py, and cuts

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Nobody pulls or pushes meanwhile; what was pushed is in the rows, here and in the copy elsewhere."""
        with self._gate.closed():
            if self._own.flush(self._now()):
                self._tally.update()
            yield

    @property
    def held(self) -> Flags:
        """Our slots."""
        return self._held

    def turn(self) -> int:
        """From here on changes belong to a new generation; its number."""
        return self._own.turn()

    def changed(
        self, slots: Flags, since: int, stripes: range = range(_native.STRIPES)
    ) -> Iterator[tuple[TableSpec, tuple[Part, Part]]]:
        """Rows of these slots that changed in generation `since` or later, a piece at a time: values, then state."""
        return self._own.changed(slots, since, stripes)

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

    def expire(self) -> int:
        """Drop rows that nobody used for longer than their table keeps them; how many that were."""
        return self._own.expire(self._now())

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
        with self._copies.gate.closed():
            self._copies.take_out(of)

    def promote(self, lost: PsId, slot_map: SlotMap) -> int:
        """The copies of a lost ps become ours, as `slot_map` says; how many rows that are."""
        if self.mirror and self.mirror.target == lost:
            self.set_mirror(None)
        with self._gate.closed(), self._copies.gate.closed():
            copy = self._copies.take_out(lost)
            rows = 0
            if copy is not None:
                ours = flags(slot_map.slots_of(self.name)) & (1 - self._held)
                rows = copy.give(self._own, copy.slots & ours, self._now())
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
                made = tuple(self._own.put(part, self._now()) for part in message.parts)
                return self._mirrored(message._replace(parts=made))
            case Kind.DECLARE:
                text = json.dumps(self.declare(message.text)).encode()
                return self._mirrored(message._replace(text=self._own.declared()), text=text)
            case Kind.ROWS:
                return Answer(self._reply(message, parts=self._own.rows_of(requests.stripe(message), self._held)))
            case Kind.LOAD:
                self._own.load(message.parts, self._now())
                return self._mirrored(message)
            case Kind.TAKE:
                document, slot_map = requests.marks(message), requests.slot_map(message, self.map.version)
                requests.load_marks(self._own, document)
                self.set_map(slot_map)
                return self._mirrored(message)
            case Kind.FORGET:
                slots = requests.slots(message)
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
        requests.check_numbers(message)
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
        group = self.clock
        age = staleness(group, message.clock)
        if self._terms.is_stale(age) and not self._own.has(message, slots):
            self._tally.count(stale=1)
            return Answer(self._reply(message, status=Status.STALE))
        message = message._replace(clock=group, rate=self._terms.rate(message.rate, age))
        parts = self._own.take(message, slots)
        if parts is None:
            self._tally.count(repeated=1)
            return self._mirrored(message)
        is_update = True
        if self._terms.grads_to_wait > 1:
            is_update = self._own.gather(message, parts, message.rate, group, self._now())
        else:
            self._own.apply(parts, message.rate, message.step, self._now())
        self._tally.push(age, is_update=is_update)
        return self._mirrored(message)

    def _mirrored(self, message: Message, text: bytes = b"") -> Answer:
        """Done here; the copy must have it, too. Inside the gate: no mirror comes or is complete meanwhile."""
        reply, mirror = self._reply(message, text=text), self.mirror
        if mirror is None:
            return Answer(reply)
        return Answer(reply, mirror, message._replace(copy_of=number_of(self.name) + 1))

    def _serve_copy(self, message: Message) -> Message:
        try:
            return self._reply(message, text=self._copies.serve(message, self._now()))
        except NoCopy:
            return self._moved(message)

    def _moved(self, message: Message) -> Message:
        return self._reply(message, status=Status.MOVED, text=json.dumps(self.map.document()).encode())

    def _reply(
        self, message: Message, *, status: Status = Status.OK, parts: tuple[Part, ...] = (), text: bytes = b""
    ) -> Message:
        self._tally.requests += 1
        return Message(Kind.REPLY, message.request, self.map.version, status, clock=self.clock, parts=parts, text=text)

    def _now(self) -> int:
        return int(self._clock())
