"""Parses and checks the contents of requests to a ps, before anything is done with them."""

from __future__ import annotations

import json

import numpy as np

from elasticdl.ps._native import STRIPES
from elasticdl.ps.slots import SLOTS, SlotMap
from elasticdl.ps.tables.applied_pushes import PackedPushes, SlotMask, slot_mask
from elasticdl.ps.tables.row_store import RequestRefused, RowStore
from elasticdl.ps.wire.messages import PsMessage

_MAX_LEARNING_RATE = float(np.finfo(np.float32).max)
_MAX_NUMBER = 1 << 62  # above every number, clock and step


def check_numbers(message: PsMessage) -> None:
    if not abs(message.learning_rate) <= _MAX_LEARNING_RATE:  # or not a number
        raise RequestRefused(f"learning rate: expected a finite number of 32 bits. Received: {message.learning_rate}")
    numbers = (message.push_number, message.clock, message.step)
    if max(numbers) >= _MAX_NUMBER:
        raise RequestRefused(f"number, clock and step: expected less than {_MAX_NUMBER}. Received: {numbers}")


def parse_slot_map(message: PsMessage, above: int) -> SlotMap:
    """Parses the map in the text, which must be newer than version `above`."""
    try:
        slot_map = SlotMap.from_document(json.loads(message.text))
    except (ValueError, KeyError, TypeError) as exc:
        raise RequestRefused(f"{message.kind.name}: expected a map: {exc}") from exc
    if slot_map.version <= above:
        raise RequestRefused(f"{message.kind.name}: expected a map above {above}. Received: {slot_map.version}")
    return slot_map


def parse_applied_pushes(message: PsMessage) -> PackedPushes:
    if len(message.parts) != 1:
        raise RequestRefused(
            f"TAKE_OVER: expected applied pushes as ids of one part. Received: {len(message.parts)} parts"
        )
    return message.parts[0].ids


def merge_applied_pushes(store: RowStore, document: PackedPushes) -> None:
    try:
        store.merge_applied_pushes(document)
    except ValueError as exc:
        raise RequestRefused(f"TAKE_OVER: {exc}") from exc


def parse_stripe(message: PsMessage) -> tuple[int, int]:
    """Parses the table and the stripe that a request names."""
    if len(message.parts) != 1 or len(message.parts[0].ids) != 1 or not 0 <= message.parts[0].ids[0] < STRIPES:
        raise RequestRefused(f"READ_STRIPE: expected one part with one id, a stripe below {STRIPES}")
    return message.parts[0].table, int(message.parts[0].ids[0])


def parse_slots(message: PsMessage) -> SlotMask:
    """Parses the slots that are the ids of the parts."""
    slots: list[int] = [slot for part in message.parts for slot in part.ids.tolist()]
    if not all(0 <= slot < SLOTS for slot in slots):
        raise RequestRefused(f"{message.kind.name}: expected slots below {SLOTS}")
    return slot_mask(slots)
