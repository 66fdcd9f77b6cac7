"""Copies a ps holds of what others own: what the owner has done with its rows is done with ours.

Requests for a copy wait for nothing but the memory, so whoever waits for a copy does not wait for long.
"""

from __future__ import annotations

import json

import numpy as np

from elasticdl.ps import _native, requests
from elasticdl.ps.gate import Gate
from elasticdl.ps.marks import Flags, flags
from elasticdl.ps.slots import SLOTS, number_of
from elasticdl.ps.store import Refused, Store, only, touched
from elasticdl.ps.wire import Kind, Message
from elasticdl.spec import PsId


class NoCopy(Exception):
    """It was promoted or dropped: its owner is no owner any more."""


class Copy:
    """What we hold for another ps, and the slots that are whole."""

    __slots__ = ("slots", "store")

    def __init__(self, store: Store) -> None:
        self.store = store
        self.slots = np.zeros(SLOTS, np.uint8)

    def give(self, to: Store, slots: Flags, now: int) -> int:
        """Rows and marks of these slots become the other's; how many rows that are."""
        rows = 0
        self.store.flush(now)
        to.forget(slots)
        to.load_marks(self.store.marks(slots))
        numbers = to.declare(self.store.declared())
        for stripe in range(_native.STRIPES):
            some = np.zeros(SLOTS, np.uint8)
            some[stripe :: _native.STRIPES] = slots[stripe :: _native.STRIPES]
            for spec, pieces in self.store.changed(some, 0, range(stripe, stripe + 1)):
                rows += len(pieces[0].ids)
                to.load([piece._replace(table=numbers[spec.name]) for piece in pieces], now)
            self.store.forget(some)  # at once: there may be no room for all of them twice
        return rows


class Copies:
    """By the owner's number on the wire. Every method may be called from any thread."""

    def __init__(self, seed: int, budget: _native.Budget, grads_to_wait: int) -> None:
        self._seed = seed
        self._budget = budget
        self._grads_to_wait = grads_to_wait
        self._copies: dict[int, Copy] = {}
        self.gate = Gate()

    def __len__(self) -> int:
        return len(self._copies)

    @property
    def rows(self) -> dict[str, int]:
        return {f"ps-{number - 1}": copy.store.rows for number, copy in list(self._copies.items())}

    @property
    def waited_s(self) -> float:
        return sum(copy.store.waited_s for copy in list(self._copies.values()))

    def take_out(self, owner: PsId) -> Copy | None:
        """The copy of this ps, which is none any more. The gate must be closed."""
        return self._copies.pop(number_of(owner) + 1, None)

    def serve(self, message: Message, now: int) -> bytes:
        """The text of the reply. Raises NoCopy, Refused. The caller has passed the gate."""
        if message.kind is Kind.DECLARE:
            made = Copy(Store(self._seed, self._budget, self._grads_to_wait, admits=False))
            copy = self._copies.setdefault(message.copy_of, made)
            return json.dumps(copy.store.declare(message.text)).encode()
        found = self._copies.get(message.copy_of)
        if found is None:
            raise NoCopy
        match message.kind:
            case Kind.PUSH:
                self._push(found, message, now)
            case Kind.PUT:
                found.store.check(message.parts, "value")
                for part in message.parts:
                    found.store.put(part, now)
            case Kind.LOAD:
                found.store.load(message.parts, now)
            case Kind.TAKE:
                document = requests.marks(message)
                requests.load_marks(found.store, document)
                found.slots |= flags(document[1 : 1 + int(document[0])].tolist())
            case Kind.FORGET:
                slots = requests.slots(message)
                found.slots &= 1 - slots
                found.store.forget(slots)
            case _:
                raise Refused(f"a copy does not answer {message.kind.name}")
        return b""

    def _push(self, copy: Copy, message: Message, now: int) -> None:
        """Slots that are not copied yet come with their rows later."""
        requests.check_numbers(message)
        copy.store.check(message.parts, "gradient")
        message = message._replace(parts=only(message.parts, copy.slots))
        parts = copy.store.take(message, touched(message.parts))
        if parts is None:
            return
        if self._grads_to_wait > 1:
            copy.store.gather(message, parts, message.rate, message.clock, now)
        else:
            copy.store.apply(parts, message.rate, message.step, now)
