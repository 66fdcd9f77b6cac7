"""Slots move from one ps to another while workers go on: all rows, then what changed since, then the last."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from elasticdl.ps.holdings import Holdings, flags
from elasticdl.ps.line import Lines
from elasticdl.ps.marks import Flags
from elasticdl.ps.slots import SlotMap
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

    Where the target cannot take them the map before stays in force here, with all rows.
    """
    wanted = flags(slots)
    lines.ask(target, forgetting(slots))  # what an earlier move that failed has left there
    sent, since, numbers = 0, 0, dict[str, int]()
    for _ in range(_MOST_ROUNDS):
        turned = holdings.turn()
        count = _send(holdings, wanted, since, numbers, target, lines)
        sent, since = sent + count, turned
        if count <= _FEW:
            break
    with holdings.closed():
        started = time.monotonic()
        sent += _send(holdings, wanted, since, numbers, target, lines)
        text = json.dumps(slot_map.document()).encode()
        lines.ask(target, Message(Kind.TAKE, 0, parts=(Part(0, holdings.marks(wanted), NO_ROWS),), text=text))
        holdings.set_map(slot_map)
        pause_s = time.monotonic() - started
    holdings.forget(wanted)
    return Moved(sent, pause_s)


def forgetting(slots: Sequence[int]) -> Message:
    return Message(Kind.FORGET, 0, parts=(Part(0, np.array(slots, np.int64), NO_ROWS),))


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
