"""Slots move from one ps to another while workers go on: all rows, then what changed since, then the last."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import NamedTuple

from elasticdl.ps.holdings import Flags, Holdings, flags
from elasticdl.ps.line import Lines
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.wire import Kind, Message, Part
from elasticdl.spec import PsId

_FEW = 2000  # rows whose transfer takes a millisecond or two
_MOST_ROUNDS = 8
_PIECES = 16  # in one message


class Moved(NamedTuple):
    rows: int  # sent, those sent twice included
    pause_s: float  # for so long nobody could pull or push here


def move(holdings: Holdings, slots: Sequence[int], target: PsId, lines: Lines, slot_map: SlotMap) -> Moved:
    """Give `slots` to `target`, which `slot_map` names as their owner; it is in force at both when this returns."""
    wanted = flags(slots)
    numbers: dict[str, int] = {}  # of the tables, at the target
    sent, since = 0, 0
    for _ in range(_MOST_ROUNDS):
        turned = holdings.turn()
        count = _send(holdings, wanted, since, numbers, target, lines)
        sent, since = sent + count, turned
        if count <= _FEW:
            break
    with holdings.closed():
        started = time.monotonic()
        sent += _send(holdings, wanted, since, numbers, target, lines)
        lines.ask(target, Message(Kind.TAKE, 0, text=holdings.hand_over(slot_map)))
        pause_s = time.monotonic() - started
    holdings.forget(wanted)
    return Moved(sent, pause_s)


def _send(holdings: Holdings, wanted: Flags, since: int, numbers: dict[str, int], target: PsId, lines: Lines) -> int:
    """Send what changed; returns when all of it has been loaded there."""
    sent, pieces = 0, list[Part]()
    for spec, (values, state) in holdings.changed(wanted, since):
        if spec.name not in numbers:  # workers may declare tables at any time
            text = json.dumps([spec.model_dump()]).encode()
            numbers |= json.loads(lines.ask(target, Message(Kind.DECLARE, 0, text=text)).text)
        number = numbers[spec.name]
        pieces += [values._replace(table=number), state._replace(table=number)]
        sent += len(values.ids)
        if len(pieces) >= 2 * _PIECES:
            lines.ask(target, Message(Kind.LOAD, 0, parts=tuple(pieces)))
            pieces = []
    if pieces:
        lines.ask(target, Message(Kind.LOAD, 0, parts=tuple(pieces)))
    return sent
