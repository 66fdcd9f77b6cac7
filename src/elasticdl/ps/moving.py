"""Slots move from one ps to another while workers go on: all rows, then what changed since, then the last."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from elasticdl.ps.holdings import Holdings
from elasticdl.ps.line import Lines, PsUnreachable
from elasticdl.ps.marks import Flags, flags
from elasticdl.ps.slots import SlotMap, number_of
from elasticdl.ps.wire import NO_ROWS, Kind, Message, Part
from elasticdl.spec import PsId

_FEW = 2000  # rows whose transfer takes a millisecond or two
_MOST_ROUNDS = 8
_PIECES = 16  # in one message


class Moved(NamedTuple):
    rows: int  # sent, those sent twice included
    pause_s: float  # for so long nobody could pull or push here


def move(holdings: Holdings, slots: Sequence[int], target: PsId, lines: Lines, slot_map: SlotMap) -> Moved:
    """Give `slots` to `target`, which `slot_map` names as their owner; it is in force at both when this returns.

    Where the target does not take them the map before stays in force here, with all rows.
    """
    transfer = Transfer(holdings, target, lines)
    transfer.ask(forgetting(slots))  # what an earlier move that failed has left there
    transfer.catch_up(flags(slots))
    with holdings.closed():
        started = time.monotonic()
        transfer.finish(flags(slots), json.dumps(slot_map.document()).encode())
        holdings.set_map(slot_map)
        pause_s = time.monotonic() - started
    holdings.forget(flags(slots))
    if mirror := holdings.mirror:
        lines.connect(mirror.target, mirror.address)
        with contextlib.suppress(PsUnreachable):  # the slots have moved; whoever holds copies may be gone
            lines.ask(mirror.target, forgetting(slots)._replace(copy_of=number_of(holdings.name) + 1))
    return Moved(transfer.rows, pause_s)


def forgetting(slots: Sequence[int]) -> Message:
    return Message(Kind.FORGET, 0, parts=(Part(0, np.array(slots, np.int64), NO_ROWS),))


class Transfer:
    """Rows of some slots on their way to another ps: to be its own, or its copy of ps-N (`copy_of` N + 1)."""

    def __init__(self, holdings: Holdings, target: PsId, lines: Lines, copy_of: int = 0) -> None:
        self._holdings = holdings
        self._target = target
        self._lines = lines
        self._copy_of = copy_of
        self._numbers: dict[str, int] = {}  # of the tables, at the target
        self._since = 0
        self.rows = 0

    def ask(self, message: Message) -> Message:
        return self._lines.ask(self._target, message._replace(copy_of=self._copy_of))

    def catch_up(self, slots: Flags) -> None:
        """Send all rows, then again and again what changed meanwhile, until that is little."""
        for _ in range(_MOST_ROUNDS):
            turned = self._holdings.turn()
            count = self._send(slots)
            self._since = turned
            if count <= _FEW:
                return

    def finish(self, slots: Flags, text: bytes = b"") -> None:
        """While nobody pulls or pushes: send the last, and hand over."""
        self._send(slots)
        self.ask(Message(Kind.TAKE, 0, parts=(Part(0, self._holdings.marks(slots), NO_ROWS),), text=text))

    def declare(self) -> None:
        declared = self.ask(Message(Kind.DECLARE, 0, text=self._holdings.declared()))
        self._numbers = json.loads(declared.text)

    def _send(self, slots: Flags) -> int:
        """Returns when all of it has been loaded there."""
        sent, pieces = 0, list[Part]()
        for spec, (values, state) in self._holdings.changed(slots, self._since):
            if spec.name not in self._numbers:  # workers may declare tables at any time
                self.declare()
            number = self._numbers[spec.name]
            pieces += [values._replace(table=number), state._replace(table=number)]
            sent += len(values.ids)
            if len(pieces) >= 2 * _PIECES:
                self.ask(Message(Kind.LOAD, 0, parts=tuple(pieces)))
                pieces = []
        if pieces:
            self.ask(Message(Kind.LOAD, 0, parts=tuple(pieces)))
        self.rows += sent
        return sent
