"""How old the values of a push may be, and how many pushes make one update."""

from __future__ import annotations

import json

import numpy as np
import pytest

from elasticdl.ps.slots import SlotMap
from elasticdl.ps.tables.push_policy import PushPolicy, staleness, staleness_bucket
from elasticdl.ps.tables.state import BackupHolder, PsState
from elasticdl.ps.wire.messages import NO_ROWS, MessageKind, PsMessage, ReplyStatus, TablePart
from elasticdl.spec import PsId
from tests.ps_requests import reply_to

ZEROS = b'[{"name": "t", "columns": 1, "initializer": {"kind": "zeros"}}]'
ADAGRAD = b'[{"name": "t", "columns": 1, "initializer": {"kind": "zeros"}, "optimizer": {"rule": "adagrad"}}]'


def new_ps_state(terms: PushPolicy, tables: bytes = ZEROS) -> PsState:
    ps_state = PsState(PsId("ps-0"), seed=1, policy=terms)
    ps_state.set_slot_map(SlotMap.initial([PsId("ps-0")]))
    ps_state.declare(tables)
    return ps_state


def push(ids: list[int], gradient: float, *, clock: int = 0, number: int = 0, sender: int = 1) -> PsMessage:
    part = TablePart(0, np.array(ids, np.int64), np.full((len(ids), 1), gradient, np.float32))
    return PsMessage(
        MessageKind.PUSH, 1, 1, sender=sender, push_number=number, clock=clock, step=1, learning_rate=1.0, parts=(part,)
    )


def rows(held: PsState, ids: list[int]) -> list[float]:
    request = PsMessage(MessageKind.PULL_EXISTING, 1, 1, parts=(TablePart(0, np.array(ids, np.int64), NO_ROWS),))
    first_column: list[float] = reply_to(held, request).parts[0].rows[:, 0].tolist()
    return first_column


def clock(held: PsState) -> int:
    return reply_to(held, PsMessage(MessageKind.PULL, 1, 1)).clock


def test_staleness_is_counted_in_updates_and_shown_in_powers_of_two() -> None:
    assert [staleness_bucket(updates) for updates in (0, 1, 2, 3, 4, 7, 8, 15, 16)] == [0, 1, 2, 2, 3, 3, 4, 4, 5]
    assert staleness_bucket(1 << 60) == staleness_bucket(1 << 61)
    assert (staleness(9, 7), staleness(9, 0), staleness(3, 8)) == (2, 0, 0)


def test_the_clock_moves_with_every_update_and_a_pull_tells_it() -> None:
    held = new_ps_state(PushPolicy())
    seen = [clock(held)]
    for number in (1, 2, 2, 3):
        reply_to(held, push([1], 1.0, number=number))
        seen.append(clock(held))
    assert seen == [1, 2, 3, 3, 4]


def test_a_push_that_is_too_old_is_neither_applied_nor_marked() -> None:
    held = new_ps_state(PushPolicy(max_staleness=2))
    for number in range(1, 5):
        assert reply_to(held, push([1], 1.0, clock=clock(held), number=number)).status is ReplyStatus.OK
    old = push([1], 1.0, clock=2, number=9)
    assert reply_to(held, old).status is ReplyStatus.STALE
    assert reply_to(held, old._replace(clock=3)).status is ReplyStatus.OK
    assert reply_to(held, old).status is ReplyStatus.OK, "it is in the rows by now"
    assert reply_to(held, push([1], 1.0, clock=0, number=10)).status is ReplyStatus.OK, "nobody knows how old it is"

    assert rows(held, [1]) == [-6.0]
    assert held.heartbeat()["staleness"][:3] == [5, 0, 1]


def test_the_rate_is_divided_by_the_staleness() -> None:
    held = new_ps_state(PushPolicy(scale_lr_by_staleness=True))
    for number in range(1, 5):
        reply_to(held, push([2], 0.0, number=number))
    reply_to(held, push([1], 1.0, clock=1, number=5))  # four updates old
    reply_to(held, push([1], 1.0, clock=5, number=6))  # one
    reply_to(held, push([1], 1.0, clock=7, number=7))
    assert rows(held, [1]) == [-0.25 - 1.0 - 1.0]


def test_so_many_pushes_make_one_update_with_their_mean() -> None:
    held = new_ps_state(PushPolicy(grads_to_wait=3), ADAGRAD)
    before = clock(held)
    assert reply_to(held, push([1, 2], 6.0, clock=before, number=1)).status is ReplyStatus.OK
    assert reply_to(held, push([1, 2], 6.0, clock=before, number=1)).status is ReplyStatus.OK, "again: it counts once"
    assert reply_to(held, push([2, 3], 3.0, clock=before, number=2)).status is ReplyStatus.OK
    assert (rows(held, [1, 2, 3]), clock(held)) == ([0.0, 0.0, 0.0], before)
    assert reply_to(held, push([3], 9.0, clock=before, number=3)).status is ReplyStatus.OK

    assert rows(held, [1, 2, 3]) == pytest.approx([-1.0, -1.0, -1.0]), "Adagrad's first step has the size of the rate"
    assert clock(held) == before + 1
    alone = new_ps_state(PushPolicy(), ADAGRAD)
    reply_to(alone, push([2], 3.0, number=1))
    assert rows(alone, [2]) == rows(held, [2])
    assert reply_to(held, push([1], 1.0, clock=before, number=4)).status is ReplyStatus.STALE, (
        "it has not seen the update"
    )
    assert reply_to(held, push([1], 1.0, clock=before + 1, number=4)).status is ReplyStatus.OK


def test_what_waits_is_applied_before_slots_move_or_are_saved() -> None:
    held = new_ps_state(PushPolicy(grads_to_wait=4))
    before = clock(held)
    reply_to(held, push([1], 1.0, clock=before, number=1))
    reply_to(held, push([1], 2.0, clock=before, number=2))
    with held.exclusive():
        assert rows_of(held) == {1: -1.5}
    assert clock(held) == before + 1
    with held.exclusive():
        pass
    assert clock(held) == before + 1, "nothing waited"


def rows_of(held: PsState) -> dict[int, float]:
    parts = held.changed_rows(np.ones(1024, np.uint8), 0)
    return {
        int(row_id): float(row[0]) for _, (part, _) in parts for row_id, row in zip(part.ids, part.rows, strict=True)
    }


def test_a_copy_gathers_as_its_owner_does() -> None:
    owner, copy = (
        new_ps_state(PushPolicy(grads_to_wait=2)),
        PsState(PsId("ps-1"), seed=1, policy=PushPolicy(grads_to_wait=2)),
    )
    marks = TablePart(0, owner.pack_applied_pushes(owner.owned_slots), NO_ROWS)
    for message in (
        PsMessage(MessageKind.DECLARE, 0, text=owner.encode_specs()),
        PsMessage(MessageKind.TAKE_OVER, 0, parts=(marks,)),
    ):
        assert reply_to(copy, message._replace(backup_of=1)).status is ReplyStatus.OK
    owner.set_backup(BackupHolder(PsId("ps-1"), ""))
    sent = []
    for number in range(1, 6):
        answer = owner.serve(push([1], float(number), clock=clock(owner), number=number))
        assert answer and answer.forward
        sent.append(answer.forward)
        owner.finish_forward()
    for message in (sent[2], sent[0], sent[4], sent[3], sent[1], sent[0]):  # two threads may send in any order
        assert reply_to(copy, message).status is ReplyStatus.OK
    with owner.exclusive():
        pass
    copy.promote_backup(PsId("ps-0"), SlotMap(2, (PsId("ps-1"),) * 1024))

    assert rows_of(copy) == rows_of(owner) == {1: -1.5 - 3.5 - 5.0}


def test_ids_without_a_row_have_none_in_the_copy_either() -> None:
    seldom = json.dumps([{**json.loads(ZEROS)[0], "admit_after": 2}]).encode()
    owner, copy = new_ps_state(PushPolicy(), seldom), PsState(PsId("ps-1"), seed=1)
    marks = TablePart(0, owner.pack_applied_pushes(owner.owned_slots), NO_ROWS)
    for message in (
        PsMessage(MessageKind.DECLARE, 0, text=owner.encode_specs()),
        PsMessage(MessageKind.TAKE_OVER, 0, parts=(marks,)),
    ):
        reply_to(copy, message._replace(backup_of=1))
    owner.set_backup(BackupHolder(PsId("ps-1"), ""))
    for _ in range(2):
        reply_to(owner, push([7], 0.0)._replace(kind=MessageKind.PULL))
    answer = owner.serve(push([7, 8], 1.0, number=1))
    assert answer and answer.forward
    reply_to(copy, answer.forward)
    owner.finish_forward()
    copy.promote_backup(PsId("ps-0"), SlotMap(2, (PsId("ps-1"),) * 1024))

    assert rows_of(copy) == rows_of(owner) == {7: -1.0}


def test_a_beat_has_what_the_master_wants_to_know() -> None:
    held = new_ps_state(PushPolicy())
    reply_to(held, push([1, 2], 1.0, number=1))
    reply_to(held, push([1, 2], 1.0, number=1))
    reply_to(held, push([1, 2], float("nan"), number=2))
    beat = held.heartbeat()
    assert beat.pop("bytes") > 0
    assert beat.pop("lock_wait_s") == 0.0
    assert beat.pop("staleness")[0] == 1
    assert beat == {
        "map_version": 1, "rows": 2, "requests": 3, "applied": 1, "repeated": 1, "refused": 1, "clock": 2,
    }  # fmt: skip
