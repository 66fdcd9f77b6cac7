"""Requests of somebody who has the token: whatever they say is answered, and the rows that are there stay whole.

An input is a list of frames as for ps_wire. What the holdings raise is an error of ours: nothing may be raised.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from elasticdl.ps import wire
from elasticdl.ps.holdings import Holdings
from elasticdl.ps.slots import SLOTS, SlotMap
from elasticdl.ps.wire import NO_IDS, NO_ROWS, Kind, Malformed, Message, Part, Status
from elasticdl.spec import PsId
from tests.fuzz.ps_wire import join, split

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
        message = wire.decode(split(data))
    except Malformed:
        return
    held = _holdings()
    reply = held.answer(message)
    assert (reply.kind, reply.request) == (Kind.REPLY, message.request)
    _rows(held, message)
    status = held.answer(Message(Kind.STATUS, 1))
    assert status.status is Status.OK and json.loads(status.text)["name"] == _PS


def _holdings() -> Holdings:
    held = Holdings(_PS, seed=1, memory_limit=_LIMIT_BYTES)
    held.set_map(SlotMap.first([_PS]))
    held.declare(_TABLES)
    held.answer(Message(Kind.DECLARE, 1, copy_of=2, text=_TABLES))
    held.answer(Message(Kind.PULL, 1, 1, parts=(Part(0, _IDS, NO_ROWS), Part(1, _IDS, NO_ROWS))))
    return held


def _rows(held: Holdings, message: Message) -> None:
    """They can still be read, and are finite: only what was accepted has changed them."""
    look = held.answer(Message(Kind.LOOK, 1, held.map.version, parts=(Part(0, _IDS, NO_ROWS), Part(1, _IDS, NO_ROWS))))
    if look.status is not Status.OK:
        assert message.kind is Kind.TAKE, "only a new map takes slots away"
        return
    assert [part.rows.shape for part in look.parts] == [(3, 1), (3, 2)]
    # Rows are loaded as another ps of the job has them; a step that is too large is the model's business.
    largest = max((float(np.abs(part.rows).max()) for part in message.parts if part.rows.size), default=0.0)
    if message.kind is not Kind.LOAD and not abs(message.rate) * largest > 1e30:
        assert all(np.isfinite(part.rows).all() for part in look.parts)


def seeds() -> Iterator[bytes]:
    ones = np.ones((3, 1), np.float32)
    slots = np.array([1, 2], np.int64)
    marks = np.array([1, 7, 9, 4, 1], np.int64)
    slot_map = json.dumps(SlotMap(2, (PsId("ps-1"),) * SLOTS).document()).encode()
    for message in (
        Message(Kind.DECLARE, 1, text=_TABLES),
        Message(Kind.DECLARE, 1, text=b'[{"name": "more", "columns": 3, "ttl_s": 1.0, "admit_after": 2}]'),
        Message(Kind.PULL, 1, 1, parts=(Part(0, _IDS, NO_ROWS),)),
        Message(Kind.LOOK, 1, 1, parts=(Part(1, _IDS, NO_ROWS),)),
        Message(Kind.PUSH, 1, 1, sender=1, batch=1, rate=0.5, step=1, parts=(Part(0, _IDS, ones),)),
        Message(Kind.PUSH, 1, 1, copy_of=2, sender=1, batch=1, rate=0.5, step=1, parts=(Part(0, _IDS, ones),)),
        Message(Kind.PUT, 1, 1, parts=(Part(0, _IDS + 1, ones),)),
        Message(Kind.LOAD, 1, parts=(Part(0, _IDS, ones), Part(0, NO_IDS, np.empty((3, 0), np.float32)))),
        Message(Kind.LOAD, 1, copy_of=2, parts=(Part(0, _IDS, ones), Part(0, NO_IDS, NO_ROWS))),
        Message(Kind.TAKE, 1, parts=(Part(0, marks, NO_ROWS),), text=slot_map),
        Message(Kind.FORGET, 1, parts=(Part(0, slots, NO_ROWS),)),
        Message(Kind.FORGET, 1, copy_of=2, parts=(Part(0, slots, NO_ROWS),)),
        Message(Kind.ROWS, 1, parts=(Part(1, slots[:1], NO_ROWS),)),
        Message(Kind.STATUS, 1),
        Message(Kind.SHARE, 1, text=b"[1, 2, 3]"),
    ):
        yield join([bytes(frame) for frame in wire.encode(message)])
