"""Requests and moves of slots that tests apply to ps themselves, where a server or the master does in a job."""

from __future__ import annotations

from collections.abc import Iterable

from elasticdl.ps.slots import SlotMap, SlotMove
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.wire.messages import PsMessage


def reply_to(ps_state: PsState, message: PsMessage) -> PsMessage:
    """Serves a message as if its backup had replied at once."""
    result = ps_state.serve(message)
    assert result is not None
    if result.backup:
        ps_state.finish_forward()
    return result.reply


def apply_moves(slot_map: SlotMap, moves: Iterable[SlotMove]) -> SlotMap:
    """The next slot map, after these moves."""
    owner = list(slot_map.owner)
    for slot, _, target in moves:
        owner[slot] = target
    return SlotMap(slot_map.version + 1, tuple(owner))
