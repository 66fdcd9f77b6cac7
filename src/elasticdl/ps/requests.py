"""What requests between ps say, checked."""

from __future__ import annotations

import json

import numpy as np

from elasticdl.ps._native import STRIPES
from elasticdl.ps.marks import Document, Flags, flags
from elasticdl.ps.slots import SLOTS, SlotMap
from elasticdl.ps.store import Refused, Store
from elasticdl.ps.wire import Message

_LARGEST_RATE = float(np.finfo(np.float32).max)
_LAST = 1 << 62  # above every number, clock and step


def check_numbers(message: Message) -> None:
    if not abs(message.rate) <= _LARGEST_RATE:  # or not a number
        raise Refused(f"learning rate: expected a finite number of 32 bits. Received: {message.rate}")
    numbers = (message.batch, message.clock, message.step)
    if max(numbers) >= _LAST:
        raise Refused(f"number, clock and step: expected less than {_LAST}. Received: {numbers}")


def slot_map(message: Message, above: int) -> SlotMap:
    """The map in the text, which must be newer than the one we have."""
    try:
        found = SlotMap.load(json.loads(message.text))
    except (ValueError, KeyError, TypeError) as exc:
        raise Refused(f"{message.kind.name}: expected a map: {exc}") from exc
    if found.version <= above:
        raise Refused(f"{message.kind.name}: expected a map above {above}. Received: {found.version}")
    return found


def marks(message: Message) -> Document:
    if len(message.parts) != 1:
        raise Refused(f"TAKE: expected the marks as ids of one part. Received: {len(message.parts)} parts")
    return message.parts[0].ids


def load_marks(store: Store, document: Document) -> None:
    try:
        store.load_marks(document)
    except ValueError as exc:
        raise Refused(f"TAKE: {exc}") from exc


def stripe(message: Message) -> tuple[int, int]:
    """The table and the stripe of it that are asked for."""
    if len(message.parts) != 1 or len(message.parts[0].ids) != 1 or not 0 <= message.parts[0].ids[0] < STRIPES:
        raise Refused(f"ROWS: expected one part with one id, a stripe below {STRIPES}")
    return message.parts[0].table, int(message.parts[0].ids[0])


def slots(message: Message) -> Flags:
    """Those that are the ids of its parts."""
    found: list[int] = [slot for part in message.parts for slot in part.ids.tolist()]
    if not all(0 <= slot < SLOTS for slot in found):
        raise Refused(f"{message.kind.name}: expected slots below {SLOTS}")
    return flags(found)
