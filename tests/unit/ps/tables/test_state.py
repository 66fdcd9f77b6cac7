"""What a ps answers, without sockets."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given

from elasticdl.ps.slots import SlotMap
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.wire.messages import NO_IDS, NO_ROWS, MessageKind, PsMessage, ReplyStatus, TablePart
from elasticdl.spec import PsId
from tests.ps_requests import reply_to
from tests.unit.ps.messages import MESSAGES

ZEROS = b'[{"name": "users", "columns": 1, "initializer": {"kind": "zeros"}}]'


def new_ps_state() -> PsState:
    ps_state = PsState(PsId("ps-0"), seed=1)
    ps_state.set_slot_map(SlotMap.initial([PsId("ps-0")]))
    ps_state.declare(ZEROS)
    return ps_state


def push(batch: int = 0, sender: int = 9, rate: float = 1.0) -> PsMessage:
    part = TablePart(0, np.array([3], np.int64), np.ones((1, 1), np.float32))
    return PsMessage(MessageKind.PUSH, 1, 1, sender=sender, push_number=batch, learning_rate=rate, parts=(part,))


def look_up(held: PsState) -> list[list[float]]:
    request = PsMessage(MessageKind.PULL_EXISTING, 1, 1, parts=(push().parts[0]._replace(rows=NO_ROWS),))
    rows: list[list[float]] = reply_to(held, request).parts[0].rows.tolist()
    return rows


@given(MESSAGES)
def test_whatever_is_asked_is_answered(message: PsMessage) -> None:
    held = new_ps_state()
    reply_to(held, PsMessage(MessageKind.DECLARE, 0, backup_of=1, text=ZEROS))

    reply = reply_to(held, message)

    assert (reply.kind, reply.request) == (MessageKind.REPLY, message.request)


def test_a_batch_that_is_pushed_again_counts_once() -> None:
    held = new_ps_state()

    assert [reply_to(held, push(batch=4)).status for _ in range(3)] == [ReplyStatus.OK] * 3
    assert reply_to(held, push(batch=4, sender=10)).status is ReplyStatus.OK
    assert look_up(held) == [[-2.0]]
    assert (held.push_count, held.heartbeat()["repeated"]) == (2, 2)


def test_a_push_that_was_applied_before_its_slots_moved_counts_where_they_went() -> None:
    before, after = new_ps_state(), PsState(PsId("ps-1"), seed=1)
    after.declare(ZEROS)
    reply_to(before, push(batch=1))
    everything = np.ones(1024, np.uint8)
    for _, parts in before.changed_rows(everything, 0):
        assert reply_to(after, PsMessage(MessageKind.LOAD, 0, parts=parts)).status is ReplyStatus.OK
    moved = SlotMap.initial([PsId("ps-0")])._replace(version=2, owner=(PsId("ps-1"),) * 1024)
    text, marks = (
        json.dumps(moved.to_document()).encode(),
        TablePart(0, before.pack_applied_pushes(everything), NO_ROWS),
    )
    assert reply_to(after, PsMessage(MessageKind.TAKE_OVER, 0, text=text, parts=(marks,))).status is ReplyStatus.OK
    before.set_slot_map(moved)

    assert reply_to(after, push(batch=1)._replace(map_version=2)).status is ReplyStatus.OK  # it is in the rows already
    assert look_up(after) == [[-1.0]]
    assert reply_to(after, push(batch=2)._replace(map_version=2)).status is ReplyStatus.OK
    assert look_up(after) == [[-2.0]]
    assert reply_to(before, push(batch=1)).status is ReplyStatus.MOVED


def test_a_request_made_with_an_old_map_is_told_the_new_one() -> None:
    held = new_ps_state()
    everything = tuple(PsId("ps-1") for _ in range(1024))
    held.set_slot_map(SlotMap(5, everything))

    reply = reply_to(held, push())

    assert reply.status is ReplyStatus.MOVED
    assert SlotMap.from_document(json.loads(reply.text)).version == 5
    assert (held.push_count, held.status()["tables"]["users"]["rows"]) == (0, 0)


def test_what_is_wrong_is_refused_by_name() -> None:
    held = new_ps_state()
    messages = {
        reply_to(
            held, push(rate=float("nan"))
        ).text: b"learning rate: expected a finite number of 32 bits. Received: nan",
        reply_to(held, push(rate=1e39)).text: b"learning rate: expected a finite number of 32 bits. Received: 1e+39",
        reply_to(
            held, push()._replace(parts=(TablePart(7, NO_IDS, NO_ROWS),))
        ).text: b"expected a table below 1, in the order of DECLARE. Received: 7",
        reply_to(held, PsMessage(MessageKind.DECLARE, 0, text=b"{")).text[:7]: b"tables:",
        reply_to(held, PsMessage(MessageKind.TAKE_OVER, 0, text=b"[]")).text[:10]: b"TAKE_OVER:",
        reply_to(held, PsMessage(MessageKind.TAKE_OVER, 0, text=b"[]", parts=(TablePart(0, NO_IDS, NO_ROWS),))).text[
            :25
        ]: b"TAKE_OVER: expected a map",
        reply_to(held, push()._replace(kind=MessageKind.DROP)).text: b"DROP: expected slots that this ps does not own",
    }
    assert all(message == expected for message, expected in messages.items()), messages


def test_rows_that_nobody_uses_expire_where_their_table_says_so() -> None:
    now = [100.0]
    held = PsState(PsId("ps-0"), seed=1, clock=lambda: now[0])
    held.set_slot_map(SlotMap.initial([PsId("ps-0")]))
    held.declare(b'[{"name": "kept", "columns": 1}, {"name": "short", "columns": 1, "ttl_s": 10}]')
    for number in range(2):
        reply_to(held, PsMessage(MessageKind.PULL, 0, 1, parts=(TablePart(number, np.arange(5), NO_ROWS),)))
    now[0] = 109.0
    reply_to(held, PsMessage(MessageKind.PULL, 0, 1, parts=(TablePart(1, np.arange(2), NO_ROWS),)))
    assert held.expire_rows() == 0

    now[0] = 115.0
    assert held.expire_rows() == 3
    tables = held.status()["tables"]
    assert (tables["kept"]["rows"], tables["short"]["rows"]) == (5, 2)
