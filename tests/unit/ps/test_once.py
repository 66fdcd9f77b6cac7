"""Every push is in the rows exactly once, whatever is sent again, cut up, moved, computed twice or lost on the way."""

from __future__ import annotations

import json
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.ps import _native
from elasticdl.ps.slots import SLOTS, SlotMap, SlotMove
from elasticdl.ps.tables.applied_pushes import slot_mask
from elasticdl.ps.tables.state import BackupHolder, PsState, ServeResult
from elasticdl.ps.wire.messages import NO_ROWS, MessageKind, PsMessage, ReplyStatus, TablePart
from elasticdl.spec import PsId
from tests.properties import examples
from tests.ps_requests import apply_moves

ZEROS = b'[{"name": "t", "columns": 1, "initializer": {"kind": "zeros"}}]'
NAMES = [PsId(f"ps-{number}") for number in range(3)]
IDS = list(range(8))
SLOT = {row_id: int(_native.slots(np.array([row_id]))[0]) for row_id in IDS}


class Push(NamedTuple):
    sender: int
    number: int
    ids: tuple[int, ...]


class Waiting(NamedTuple):
    """A push that is applied, but not answered before the copy has it, too."""

    owner: PsId
    answer: ServeResult
    push: Push


class World:
    """Three ps and a network that delivers when and as often as the test says."""

    def __init__(self, has_backups: bool) -> None:
        self.ps = {name: PsState(name, seed=1) for name in NAMES}
        self.maps = [SlotMap.initial(NAMES)]
        self.network: list[tuple[PsId, PsMessage, Push]] = []
        self.waiting: list[Waiting] = []
        self.pushes: list[Push] = []
        self.acknowledged: set[tuple[int, int, int]] = set()
        for holdings in self.ps.values():
            holdings.declare(ZEROS)
            holdings.set_slot_map(self.maps[0])
        if has_backups:
            for name, target in zip(NAMES, [*NAMES[1:], NAMES[0]], strict=True):
                self.back_up(name, target)

    # ---- the worker

    def send(self, push: Push, slot_map: SlotMap) -> None:
        for name in slot_map.members:
            ids = np.array([row_id for row_id in push.ids if slot_map.owner[SLOT[row_id]] == name], np.int64)
            if len(ids):
                part = TablePart(0, ids, np.ones((len(ids), 1), np.float32))
                message = PsMessage(
                    MessageKind.PUSH,
                    1,
                    slot_map.version,
                    sender=push.sender,
                    push_number=push.number,
                    learning_rate=1.0,
                )
                self.network.append((name, message._replace(parts=(part,)), push))

    def deliver(self, at: int, *, keep: bool) -> None:
        name, message, push = self.network[at] if keep else self.network.pop(at)
        if name not in self.ps:
            if not keep:
                self.again(message, push)
            return
        answer = self.ps[name].serve(message)
        assert answer is not None
        if answer.backup:
            self.waiting.append(Waiting(name, answer, push))
        else:
            self.hear(message, answer.reply, push)

    def hear(self, message: PsMessage, reply: PsMessage, push: Push) -> None:
        if reply.status is ReplyStatus.MOVED:
            self.again(message, push)
        else:
            assert reply.status is ReplyStatus.OK
            self.acknowledged |= {(push.sender, push.number, int(row_id)) for row_id in message.parts[0].ids}

    def again(self, message: PsMessage, push: Push) -> None:
        self.send(push._replace(ids=tuple(message.parts[0].ids.tolist())), self.maps[-1])

    # ---- the ps

    def forward(self, index: int) -> None:
        """The copy gets what its owner has applied, and the worker its answer."""
        owner, (reply, forwarder, message), push = self.waiting.pop(index)
        assert forwarder is not None and message is not None
        if forwarder.target in self.ps:
            answer = self.ask(forwarder.target, message).reply
            if owner in self.ps and answer.status is ReplyStatus.MOVED:
                self.ps[owner].set_slot_map(SlotMap.from_document(json.loads(answer.text)))
                reply = reply._replace(status=ReplyStatus.MOVED)
            else:
                assert answer.status in {ReplyStatus.OK, ReplyStatus.MOVED}
        if owner in self.ps:
            self.ps[owner].finish_forward()
            self.hear(message, reply, push)
        else:
            self.again(message, push)  # nobody answers the worker: it asks whoever holds the slots now

    def ask(self, name: PsId, message: PsMessage) -> ServeResult:
        answer = self.ps[name].serve(message)
        assert answer is not None
        return answer

    def settle(self, name: PsId) -> None:
        """Until no push of this ps waits for its copy."""
        while any(waiting_push.owner == name for waiting_push in self.waiting):
            self.forward(next(index for index, waiting_push in enumerate(self.waiting) if waiting_push.owner == name))

    def tell(self, name: PsId, message: PsMessage) -> None:
        """As over a line: the answer comes when the copy has it."""
        answer = self.ask(name, message)
        assert answer.reply.status is ReplyStatus.OK
        if answer.backup and answer.forward:
            assert self.ask(answer.backup.target, answer.forward).reply.status is ReplyStatus.OK
            self.ps[name].finish_forward()

    def move(self, slots: list[int], target: PsId) -> None:
        for source in [name for name in self.ps if name != target]:
            mine = [slot for slot in slots if self.maps[-1].owner[slot] == source]
            if mine and target in self.ps:
                self.give(mine, source, target)

    def give(self, slots: list[int], source: PsId, target: PsId) -> None:
        holdings, slot_map = (
            self.ps[source],
            apply_moves(self.maps[-1], [SlotMove(slot, source, target) for slot in slots]),
        )
        forget = PsMessage(MessageKind.DROP, 0, parts=(TablePart(0, np.array(slots, np.int64), NO_ROWS),))
        self.settle(source)
        self.tell(target, forget)
        with holdings.exclusive():
            for _, parts in holdings.changed_rows(slot_mask(slots), 0):
                self.tell(target, PsMessage(MessageKind.LOAD, 0, parts=parts))
            marks = TablePart(0, holdings.pack_applied_pushes(slot_mask(slots)), NO_ROWS)
            self.tell(
                target,
                PsMessage(MessageKind.TAKE_OVER, 0, parts=(marks,), text=json.dumps(slot_map.to_document()).encode()),
            )
            holdings.set_slot_map(slot_map)
        holdings.drop_slots(slot_mask(slots))
        if holdings.backup:
            self.ask(holdings.backup.target, forget._replace(backup_of=1 + NAMES.index(source)))
        self.maps.append(slot_map)

    def back_up(self, name: PsId, target: PsId) -> None:
        holdings, copy_of = self.ps[name], 1 + NAMES.index(name)
        self.settle(name)
        with holdings.exclusive():
            everything = TablePart(0, np.arange(SLOTS), NO_ROWS)
            self.ask(target, PsMessage(MessageKind.DECLARE, 0, backup_of=copy_of, text=holdings.encode_specs()))
            self.ask(target, PsMessage(MessageKind.DROP, 0, backup_of=copy_of, parts=(everything,)))
            for _, parts in holdings.changed_rows(holdings.owned_slots, 0):
                self.ask(target, PsMessage(MessageKind.LOAD, 0, backup_of=copy_of, parts=parts))
            marks = TablePart(0, holdings.pack_applied_pushes(holdings.owned_slots), NO_ROWS)
            self.ask(target, PsMessage(MessageKind.TAKE_OVER, 0, backup_of=copy_of, parts=(marks,)))
            holdings.set_backup(BackupHolder(target, ""))

    def kill(self, name: PsId) -> None:
        """A ps is gone; whoever holds its copies owns them, and those that had theirs there look for another."""
        replica = self.ps[name].backup
        del self.ps[name]
        for waiting_push in [
            waiting_push
            for waiting_push in self.waiting
            if waiting_push.answer.backup and waiting_push.answer.backup.target == name
        ]:
            self.forward(self.waiting.index(waiting_push))
        assert replica is not None
        heir = replica.target
        self.settle(heir)
        slot_map = apply_moves(self.maps[-1], [SlotMove(slot, name, heir) for slot in self.maps[-1].slots_of(name)])
        self.ps[heir].promote_backup(name, slot_map)
        self.maps.append(slot_map)
        for ps in self.ps:
            self.back_up(ps, next(other_ps for other_ps in self.ps if other_ps != ps))

    def rows(self) -> dict[int, float]:
        values = {}
        for row_id in IDS:
            holdings = self.ps[self.maps[-1].owner[SLOT[row_id]]]
            request = PsMessage(
                MessageKind.PULL_EXISTING, 0, self.maps[-1].version, parts=(TablePart(0, np.array([row_id]), NO_ROWS),)
            )
            values[row_id] = float(self.ask(holdings.name, request).reply.parts[0].rows[0, 0])
        return values


@pytest.mark.parametrize("has_backups", [False, True])
@settings(max_examples=examples(200))
@given(data=st.data())
def test_every_push_is_in_the_rows_exactly_once(has_backups: bool, data: st.DataObject) -> None:
    world, numbers = World(has_backups), Counter[int]()
    for _ in range(data.draw(st.integers(1, 40), "events")):
        match data.draw(st.sampled_from(["push", "deliver", "again", "forward", "move", "kill"]), "event"):
            case "push":
                sender = data.draw(st.integers(0, 2), "sender")
                numbers[sender] += 1
                ids = tuple(sorted(data.draw(st.sets(st.sampled_from(IDS), min_size=1), "ids")))
                world.pushes.append(Push(sender, numbers[sender], ids))
                world.send(world.pushes[-1], data.draw(st.sampled_from(world.maps), "map"))
            case "again" if world.pushes:
                world.send(data.draw(st.sampled_from(world.pushes)), data.draw(st.sampled_from(world.maps), "map"))
            case "deliver" if world.network:
                index = data.draw(st.integers(0, len(world.network) - 1), "message")
                world.deliver(index, keep=data.draw(st.booleans(), "is delivered again"))
            case "forward" if world.waiting:
                world.forward(data.draw(st.integers(0, len(world.waiting) - 1), "forward"))
            case "move":
                slots = data.draw(st.sets(st.sampled_from(sorted(SLOT.values()))), "slots")
                world.move(sorted(slots), data.draw(st.sampled_from(sorted(world.ps)), "target"))
            case "kill" if has_backups and len(world.ps) == len(NAMES):
                before = set(world.acknowledged)
                world.kill(data.draw(st.sampled_from(NAMES), "killed"))
                expect_at_least(world, before)
    while world.network or world.waiting:
        if world.network:
            world.deliver(0, keep=False)
        else:
            world.forward(0)

    sent = {(push.sender, push.number, row_id) for push in world.pushes for row_id in push.ids}
    assert world.acknowledged == sent
    counts = Counter(row_id for _, _, row_id in sent)
    assert world.rows() == {row_id: -float(counts[row_id]) for row_id in IDS}


def expect_at_least(world: World, acknowledged: set[tuple[int, int, int]]) -> None:
    """What was answered is in the rows after a death; what was not may be."""
    counts, rows = Counter(row_id for _, _, row_id in acknowledged), world.rows()
    assert all(-rows[row_id] >= counts[row_id] for row_id in IDS)
