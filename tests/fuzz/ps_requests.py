"""Requests of a client that has the token: each of them is answered, and the rows that are there stay whole.

An input is a list of frames as for ps_wire. What the holdings raise is an error of ours: nothing may be raised.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from elasticdl.ps.slots import SLOTS, SlotMap
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.wire import messages
from elasticdl.ps.wire.messages import NO_IDS, NO_ROWS, MalformedMessage, MessageKind, PsMessage, ReplyStatus, TablePart
from elasticdl.spec import PsId
from tests.fuzz.ps_wire import join, split
from tests.ps_requests import reply_to

_PS = PsId("ps-0")
_TABLES = json.dumps(
    [
        {"name": "sums", "columns": 1, "initializer": {"kind": "zeros"}},
        {"name": "squares", "columns": 2, "optimizer": {"rule": "adagrad"}},
    ]
).encode()
_IDS = np.array([3, -5, 1 << 40], np.int64)
_LIMIT_BYTES = 16 << 20


def fuzz_one(data: bytes) -> None:
    try:
        message = messages.decode_message(split(data))
    except MalformedMessage:
        return
    state = _initial_state()
    reply = reply_to(state, message)
    assert (reply.kind, reply.request) == (MessageKind.REPLY, message.request)
    _check_rows(state, message)
    status = reply_to(state, PsMessage(MessageKind.STATUS, 1))
    assert status.status is ReplyStatus.OK and json.loads(status.text)["name"] == _PS


def _initial_state() -> PsState:
    state = PsState(_PS, seed=1, memory_limit=_LIMIT_BYTES)
    state.set_slot_map(SlotMap.initial([_PS]))
    state.declare(_TABLES)
    reply_to(state, PsMessage(MessageKind.DECLARE, 1, backup_of=2, text=_TABLES))
    reply_to(state, PsMessage(MessageKind.PULL, 1, 1, parts=(TablePart(0, _IDS, NO_ROWS), TablePart(1, _IDS, NO_ROWS))))
    return state


def _check_rows(state: PsState, message: PsMessage) -> None:
    """Rows can still be read and are finite: only accepted messages changed them."""
    reply = reply_to(
        state,
        PsMessage(
            MessageKind.PULL_EXISTING,
            1,
            state.slot_map.version,
            parts=(TablePart(0, _IDS, NO_ROWS), TablePart(1, _IDS, NO_ROWS)),
        ),
    )
    if reply.status is not ReplyStatus.OK:
        assert message.kind is MessageKind.TAKE_OVER, "only a new map takes slots away"
        return
    assert [part.rows.shape for part in reply.parts] == [(3, 1), (3, 2)]
    # Rows of another ps are loaded unchecked; a step that is too large is a matter of the model.
    largest = max((float(np.abs(part.rows).max()) for part in message.parts if part.rows.size), default=0.0)
    if message.kind is not MessageKind.LOAD and not abs(message.learning_rate) * largest > 1e30:
        assert all(np.isfinite(part.rows).all() for part in reply.parts)


def seeds() -> Iterator[bytes]:
    ones = np.ones((3, 1), np.float32)
    slots = np.array([1, 2], np.int64)
    marks = np.array([1, 7, 9, 4, 1], np.int64)
    slot_map = json.dumps(SlotMap(2, (PsId("ps-1"),) * SLOTS).to_document()).encode()
    for message in (
        PsMessage(MessageKind.DECLARE, 1, text=_TABLES),
        PsMessage(MessageKind.DECLARE, 1, text=b'[{"name": "more", "columns": 3, "ttl_s": 1.0, "admit_after": 2}]'),
        PsMessage(MessageKind.PULL, 1, 1, parts=(TablePart(0, _IDS, NO_ROWS),)),
        PsMessage(MessageKind.PULL_EXISTING, 1, 1, parts=(TablePart(1, _IDS, NO_ROWS),)),
        PsMessage(
            MessageKind.PUSH,
            1,
            1,
            sender=1,
            push_number=1,
            learning_rate=0.5,
            step=1,
            parts=(TablePart(0, _IDS, ones),),
        ),
        PsMessage(
            MessageKind.PUSH,
            1,
            1,
            backup_of=2,
            sender=1,
            push_number=1,
            learning_rate=0.5,
            step=1,
            parts=(TablePart(0, _IDS, ones),),
        ),
        PsMessage(MessageKind.INSERT, 1, 1, parts=(TablePart(0, _IDS + 1, ones),)),
        PsMessage(
            MessageKind.LOAD, 1, parts=(TablePart(0, _IDS, ones), TablePart(0, NO_IDS, np.empty((3, 0), np.float32)))
        ),
        PsMessage(MessageKind.LOAD, 1, backup_of=2, parts=(TablePart(0, _IDS, ones), TablePart(0, NO_IDS, NO_ROWS))),
        PsMessage(MessageKind.TAKE_OVER, 1, parts=(TablePart(0, marks, NO_ROWS),), text=slot_map),
        PsMessage(MessageKind.DROP, 1, parts=(TablePart(0, slots, NO_ROWS),)),
        PsMessage(MessageKind.DROP, 1, backup_of=2, parts=(TablePart(0, slots, NO_ROWS),)),
        PsMessage(MessageKind.READ_STRIPE, 1, parts=(TablePart(1, slots[:1], NO_ROWS),)),
        PsMessage(MessageKind.STATUS, 1),
        PsMessage(MessageKind.OPEN_MEMORY, 1, text=b"[1, 2, 3]"),
    ):
        yield join([bytes(frame) for frame in messages.encode_message(message)])
