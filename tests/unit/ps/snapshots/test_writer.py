"""The part of one ps in a snapshot, without sockets."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from elasticdl.checkpoint import manifest, safetensors_file
from elasticdl.checkpoint.manifest import FileEntry, Manifest
from elasticdl.errors import CheckpointCorrupt, SpecError
from elasticdl.ps import _native
from elasticdl.ps.slots import SLOTS, SlotMap
from elasticdl.ps.snapshots import snapshot_files
from elasticdl.ps.snapshots.chain import SnapshotChain, SnapshotFile, pack_slots
from elasticdl.ps.snapshots.writer import SnapshotReply, SnapshotRequest, SnapshotWriter, WriteReply, WriteRequest
from elasticdl.ps.tables.applied_pushes import slot_mask
from elasticdl.ps.tables.initializer import Initializer
from elasticdl.ps.tables.optimizer import Optimizer
from elasticdl.ps.tables.row_store import RequestRefused
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire.messages import MessageKind, PsMessage, ReplyStatus, TablePart
from elasticdl.spec import PsId
from tests.ps_requests import reply_to

SPEC = TableSpec(name="users", columns=2, initializer=Initializer(kind="zeros"))
ADAM = TableSpec(name="items", columns=1, optimizer=Optimizer(rule="adam"))
ALL = range(SLOTS)
HERE, THERE = PsId("ps-0"), PsId("ps-1")


class SinglePs:
    """A ps, its snapshot writer, and the chain of the files it wrote."""

    def __init__(self, directory: Path, slot_map: SlotMap | None = None, name: PsId = HERE) -> None:
        self.ps_state = PsState(name, seed=1)
        self.ps_state.set_slot_map(slot_map or SlotMap.initial([name]))
        self.declare(SPEC)
        self.writer = SnapshotWriter(self.ps_state)
        self.directory = directory
        self.chain: SnapshotChain | None = None
        self.entries: dict[str, FileEntry] = {}

    def declare(self, spec: TableSpec) -> None:
        self.ps_state.declare(json.dumps([spec.model_dump()]).encode())

    def push(self, ids: list[int], table: int = 0, columns: int = 2, number: int = 0) -> None:
        part = TablePart(table, np.array(ids, np.int64), np.ones((len(ids), columns), np.float32))
        message = PsMessage(
            MessageKind.PUSH,
            1,
            self.ps_state.slot_map.version,
            sender=1,
            push_number=number,
            learning_rate=1.0,
            step=1,
            parts=(part,),
        )
        assert reply_to(self.ps_state, message).status is ReplyStatus.OK

    def take_snapshot(self, snapshot_id: str, base_id: str = "") -> SnapshotReply:
        number = self.chain.number + 1 if self.chain else 1
        text = SnapshotRequest(snapshot_id=snapshot_id, base_id=base_id, number=number).model_dump_json().encode()
        return SnapshotReply.model_validate_json(self._answer(PsMessage(MessageKind.SNAPSHOT, 1, text=text)).text)

    def _answer(self, message: PsMessage) -> PsMessage:
        while (reply := self.writer.handlers[message.kind](message)) is None:
            pass
        return reply

    def write(self, snapshot_id: str, name: str = "rows") -> WriteReply:
        text = (
            WriteRequest(snapshot_id=snapshot_id, directory=str(self.directory / "ps"), name=name)
            .model_dump_json()
            .encode()
        )
        while (reply := self._send_write(text)).is_known and not reply.bytes:
            pass
        return reply

    def _send_write(self, text: bytes) -> WriteReply:
        return WriteReply.model_validate_json(self._answer(PsMessage(MessageKind.WRITE_SNAPSHOT, 1, text=text)).text)

    def write_checkpoint(self, snapshot_id: str, base_id: str = "") -> SnapshotReply:
        """Takes and writes a snapshot, with the index and the manifest of a checkpoint."""
        (self.directory / "ps").mkdir(exist_ok=True)
        reply = self.take_snapshot(snapshot_id, base_id)
        number = self.chain.number + 1 if self.chain else 1
        written = self.write(snapshot_id, f"rows-{number}")
        self.entries[f"ps/rows-{number}"] = FileEntry(written.bytes, written.sha256)
        entry = SnapshotFile(
            name=f"rows-{number}", ps=HERE, number=number, step=number, **reply.model_dump(exclude={"pause_s"})
        )
        self.chain = SnapshotChain.extend(self.chain, snapshot_id, number, (entry,))
        self.entries["ps/index.json"] = self._write_index(self.chain)
        document = Manifest("checkpoint", number, 0, self.entries, {}, {})
        (self.directory / manifest.MANIFEST_FILE).write_text(document.render())
        return reply

    def _write_index(self, chain: SnapshotChain) -> FileEntry:
        return safetensors_file.write_bytes(
            self.directory / snapshot_files.INDEX_FILE, chain.model_dump_json().encode()
        )


def rows(ps_state: PsState, table: str = "users") -> dict[int, list[float]]:
    return {
        int(row_id): row.tolist()
        for spec, (values, _) in ps_state.changed_rows(slot_mask(ALL), 0)
        for row_id, row in zip(values.ids, values.rows, strict=True)
        if spec.name == table
    }


def new_ps_state(memory_limit: int = 0) -> PsState:
    ps_state = PsState(PsId("ps-7"), 1, memory_limit)
    ps_state.set_slot_map(SlotMap.initial([PsId("ps-7")]))
    return ps_state


def test_an_increment_has_only_what_changed(tmp_path: Path) -> None:
    single = SinglePs(tmp_path)
    single.push(list(range(2000)))
    assert single.write_checkpoint("a").rows == 2000

    single.push([5, 2001])

    reply = single.write_checkpoint("b", base_id="a")
    in_turn = slot_mask([slot for slot in ALL if (slot + 2) % 8 == 0])
    assert reply.full_slots == pack_slots(in_turn)
    assert 200 < reply.rows < 320, "an eighth of the slots is whole"
    restored = new_ps_state()
    assert snapshot_files.restore_rows(restored, tmp_path, ALL).applied_pushes == 2
    assert rows(restored) == rows(single.ps_state)


def test_if_most_rows_change_the_next_snapshot_is_full_and_older_files_are_not_needed(tmp_path: Path) -> None:
    single = SinglePs(tmp_path)
    for snapshot_id, base_id in (("a", ""), ("b", "a"), ("c", "b"), ("d", "c")):
        single.push(list(range(500)))
        single.write_checkpoint(snapshot_id, base_id)

    assert single.chain is not None
    assert [file.name for file in single.chain.files] == ["rows-3", "rows-4"]
    restored = new_ps_state()
    snapshot_files.restore_rows(restored, tmp_path, ALL)
    assert set(map(tuple, rows(restored).values())) == {(-4.0, -4.0)}


def test_a_table_declared_after_a_snapshot_is_in_the_next_one(tmp_path: Path) -> None:
    single = SinglePs(tmp_path)
    for _ in range(5):
        single.ps_state.begin_generation()
    single.push(list(range(100)))
    single.write_checkpoint("a")
    single.declare(ADAM)
    single.push(list(range(50)), table=1, columns=1)
    single.write_checkpoint("b", base_id="a")
    single.push([3], table=1, columns=1)
    single.write_checkpoint("c", base_id="b")

    restored = new_ps_state()
    snapshot_files.restore_rows(restored, tmp_path, ALL)

    assert rows(restored, "items") == rows(single.ps_state, "items")
    assert len(rows(restored, "items")) == 50


def test_a_snapshot_builds_upon_its_base_although_another_came_between(tmp_path: Path) -> None:
    single = SinglePs(tmp_path)
    single.push(list(range(1000)))
    single.write_checkpoint("a")
    single.push([7])
    single.take_snapshot("given up", base_id="a")
    single.push([8])

    single.write_checkpoint("b", base_id="a")

    restored = new_ps_state()
    snapshot_files.restore_rows(restored, tmp_path, ALL)
    assert rows(restored) == rows(single.ps_state)


def test_two_copies_of_unwritten_snapshots_are_kept(tmp_path: Path) -> None:
    single = SinglePs(tmp_path)
    (tmp_path / "ps").mkdir()
    for snapshot_id in "abc":
        single.take_snapshot(snapshot_id)

    assert not single.write("a").is_known
    assert single.write("b", "b").bytes and single.write("c", "c").bytes
    assert single.write("b", "b").bytes, "it may be asked again"


def test_a_restored_ps_builds_upon_the_snapshot_it_was_restored_from(tmp_path: Path) -> None:
    before = SinglePs(tmp_path)
    before.push(list(range(2000)))
    before.write_checkpoint("a")
    after = SinglePs(tmp_path)
    after.chain, after.entries = before.chain, before.entries
    after.writer.set_restored(snapshot_files.restore_rows(after.ps_state, tmp_path, ALL).snapshot_id, ALL)
    after.push([1, 5000])

    assert after.write_checkpoint("b", base_id="a").rows < 400
    restored = new_ps_state()
    snapshot_files.restore_rows(restored, tmp_path, ALL)
    assert rows(restored) == rows(after.ps_state)
    assert len(rows(restored)) == 2001


def test_slots_that_arrive_during_a_snapshot_are_full_in_the_next(tmp_path: Path) -> None:
    halves = SlotMap.initial([HERE, THERE])
    source, target = SinglePs(tmp_path / "source", halves), SinglePs(tmp_path, SlotMap.initial([HERE, THERE]), THERE)
    ids = [row_id for row_id in range(300)]
    mine = [row_id for row_id, slot in zip(ids, slots_of(ids), strict=True) if halves.owner[slot] == HERE]
    source.push(mine)
    for _, pieces in source.ps_state.changed_rows(slot_mask(ALL), 0):
        target.ps_state.load_rows(pieces)
    target.take_snapshot("a")
    target.ps_state.set_slot_map(SlotMap(2, (THERE,) * SLOTS))

    reply = target.take_snapshot("b", base_id="a")

    assert reply.rows == len(mine)


def slots_of(ids: list[int]) -> list[int]:
    return _native.slots(np.array(ids, np.int64)).tolist()


def test_dropped_rows_do_not_come_back_from_files_before_the_slot_was_full(tmp_path: Path) -> None:
    single = SinglePs(tmp_path)
    single.push(list(range(1000)))
    single.write_checkpoint("a")
    single.ps_state.drop_slots(slot_mask(ALL))
    for number in range(2, 10):
        single.write_checkpoint(str(number), base_id="a" if number == 2 else str(number - 1))

    restored = new_ps_state()
    snapshot_files.restore_rows(restored, tmp_path, ALL)

    assert rows(restored) == {}


def test_only_the_rows_and_applied_pushes_of_the_slots_are_restored(tmp_path: Path) -> None:
    single = SinglePs(tmp_path)
    single.push(list(range(500)), number=3)
    single.write_checkpoint("a")
    restored = new_ps_state()

    snapshot_files.restore_rows(restored, tmp_path, range(0, SLOTS, 2))

    assert set(rows(restored)) == {row_id for row_id, slot in enumerate(slots_of(list(range(500)))) if slot % 2 == 0}
    assert not restored.pack_applied_pushes(slot_mask(range(1, SLOTS, 2)))[1 + SLOTS // 2 :].any()
    even = slot_mask(range(0, SLOTS, 2))
    assert (restored.pack_applied_pushes(even) == single.ps_state.pack_applied_pushes(even)).all()


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    single = SinglePs(tmp_path)
    single.push(list(range(500)))
    single.write_checkpoint("a")
    path = tmp_path / "ps" / "rows-1"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    restored = new_ps_state()

    with pytest.raises(CheckpointCorrupt, match=r"rows-1 is corrupt: expected sha256"):
        snapshot_files.restore_rows(restored, tmp_path, ALL)
    path.write_bytes(content[:100])
    with pytest.raises(CheckpointCorrupt, match=r"rows-1 is torn"):
        snapshot_files.restore_rows(restored, tmp_path, ALL)
    path.unlink()
    with pytest.raises(CheckpointCorrupt, match="rows-1 cannot be read"):
        snapshot_files.restore_rows(restored, tmp_path, ALL)
    assert rows(restored) == {}


def test_a_table_of_another_model_is_refused_by_name(tmp_path: Path) -> None:
    single = SinglePs(tmp_path)
    single.push([1])
    single.write_checkpoint("a")
    restored = new_ps_state()
    restored.declare(json.dumps([SPEC.model_copy(update={"columns": 3}).model_dump()]).encode())

    with pytest.raises(SpecError, match=r"a checkpoint of another model: table users: expected columns 3 \(not 2\)"):
        snapshot_files.restore_rows(restored, tmp_path, ALL)


def test_rows_that_do_not_fit_into_the_memory_are_refused(tmp_path: Path) -> None:
    single = SinglePs(tmp_path)
    single.push(list(range(200_000)))
    single.write_checkpoint("a")

    with pytest.raises(SpecError, match=r"ps-7 cannot restore its rows: table users: .* raise the memory limit"):
        snapshot_files.restore_rows(new_ps_state(memory_limit=100_000), tmp_path, ALL)


def test_a_checkpoint_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / manifest.MANIFEST_FILE).write_text(Manifest("checkpoint", 1, 0, {}, {}, {}).render())

    with pytest.raises(SpecError, match="expected a checkpoint with rows of ps"):
        snapshot_files.restore_rows(new_ps_state(), tmp_path, ALL)


def test_a_failed_write_names_the_file_and_the_free_space(tmp_path: Path) -> None:
    single = SinglePs(tmp_path)
    single.take_snapshot("a")

    with pytest.raises(RequestRefused, match=r"cannot write .*/ps/rows: No such file or directory \(.* MB free at"):
        single.write("a")


@pytest.mark.parametrize("text", [b"", b"{}", b'{"snapshot_id": "a", "directory": "/tmp", "name": "../x"}'])
def test_a_wrong_request_is_refused(tmp_path: Path, text: bytes) -> None:
    answers = SinglePs(tmp_path).writer.handlers

    for kind in (MessageKind.SNAPSHOT, MessageKind.WRITE_SNAPSHOT):
        with pytest.raises(RequestRefused, match=kind.name):
            answers[kind](PsMessage(kind, 1, text=text))


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Future[FileEntry]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshot_files, "write_snapshot", full)
    single = SinglePs(tmp_path)
    single.take_snapshot("a")

    with pytest.raises(RequestRefused, match="No space left on device"):
        single.write("a")
