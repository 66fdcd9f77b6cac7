"""One ps's part in a cut, without sockets."""

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


class Single:
    """A ps, its keeper, and the chain of what it wrote."""

    def __init__(self, directory: Path, slot_map: SlotMap | None = None, name: PsId = HERE) -> None:
        self.holdings = PsState(name, seed=1)
        self.holdings.set_slot_map(slot_map or SlotMap.initial([name]))
        self.declare(SPEC)
        self.keeper = SnapshotWriter(self.holdings)
        self.directory = directory
        self.chain: SnapshotChain | None = None
        self.entries: dict[str, FileEntry] = {}

    def declare(self, spec: TableSpec) -> None:
        self.holdings.declare(json.dumps([spec.model_dump()]).encode())

    def push(self, ids: list[int], table: int = 0, columns: int = 2, number: int = 0) -> None:
        part = TablePart(table, np.array(ids, np.int64), np.ones((len(ids), columns), np.float32))
        message = PsMessage(
            MessageKind.PUSH,
            1,
            self.holdings.slot_map.version,
            sender=1,
            push_number=number,
            learning_rate=1.0,
            step=1,
            parts=(part,),
        )
        assert reply_to(self.holdings, message).status is ReplyStatus.OK

    def cut(self, cut: str, base: str = "") -> SnapshotReply:
        number = self.chain.number + 1 if self.chain else 1
        text = SnapshotRequest(snapshot_id=cut, base_id=base, number=number).model_dump_json().encode()
        return SnapshotReply.model_validate_json(self._answer(PsMessage(MessageKind.SNAPSHOT, 1, text=text)).text)

    def _answer(self, message: PsMessage) -> PsMessage:
        while (reply := self.keeper.handlers[message.kind](message)) is None:
            pass
        return reply

    def keep(self, cut: str, name: str = "rows") -> WriteReply:
        text = WriteRequest(snapshot_id=cut, directory=str(self.directory / "ps"), name=name).model_dump_json().encode()
        while (kept := self._kept(text)).is_known and not kept.bytes:
            pass
        return kept

    def _kept(self, text: bytes) -> WriteReply:
        return WriteReply.model_validate_json(self._answer(PsMessage(MessageKind.WRITE_SNAPSHOT, 1, text=text)).text)

    def written(self, cut: str, base: str = "") -> SnapshotReply:
        """A cut with all that makes it a checkpoint."""
        (self.directory / "ps").mkdir(exist_ok=True)
        taken = self.cut(cut, base)
        number = self.chain.number + 1 if self.chain else 1
        kept = self.keep(cut, f"rows-{number}")
        self.entries[f"ps/rows-{number}"] = FileEntry(kept.bytes, kept.sha256)
        entry = SnapshotFile(
            name=f"rows-{number}", ps=HERE, number=number, step=number, **taken.model_dump(exclude={"pause_s"})
        )
        self.chain = SnapshotChain.extend(self.chain, cut, number, (entry,))
        self.entries["ps/index.json"] = self._write_index(self.chain)
        document = Manifest("checkpoint", number, 0, self.entries, {}, {})
        (self.directory / manifest.MANIFEST_FILE).write_text(document.render())
        return taken

    def _write_index(self, chain: SnapshotChain) -> FileEntry:
        return safetensors_file.write_bytes(
            self.directory / snapshot_files.INDEX_FILE, chain.model_dump_json().encode()
        )


def rows(holdings: PsState, table: str = "users") -> dict[int, list[float]]:
    return {
        int(one): row.tolist()
        for spec, (values, _) in holdings.changed_rows(slot_mask(ALL), 0)
        for one, row in zip(values.ids, values.rows, strict=True)
        if spec.name == table
    }


def fresh(memory_limit: int = 0) -> PsState:
    made = PsState(PsId("ps-7"), 1, memory_limit)
    made.set_slot_map(SlotMap.initial([PsId("ps-7")]))
    return made


def test_an_increment_has_only_what_changed(tmp_path: Path) -> None:
    single = Single(tmp_path)
    single.push(list(range(2000)))
    assert single.written("a").rows == 2000

    single.push([5, 2001])

    taken = single.written("b", base="a")
    in_turn = slot_mask([slot for slot in ALL if (slot + 2) % 8 == 0])
    assert taken.full_slots == pack_slots(in_turn)
    assert 200 < taken.rows < 320, "an eighth of the slots is whole"
    found = fresh()
    assert snapshot_files.restore_rows(found, tmp_path, ALL).applied_pushes == 2
    assert rows(found) == rows(single.holdings)


def test_where_most_rows_change_the_next_cut_is_whole_and_older_files_are_free(tmp_path: Path) -> None:
    single = Single(tmp_path)
    for cut, base in (("a", ""), ("b", "a"), ("c", "b"), ("d", "c")):
        single.push(list(range(500)))
        single.written(cut, base)

    assert single.chain is not None
    assert [file.name for file in single.chain.files] == ["rows-3", "rows-4"]
    found = fresh()
    snapshot_files.restore_rows(found, tmp_path, ALL)
    assert set(map(tuple, rows(found).values())) == {(-4.0, -4.0)}


def test_a_table_declared_after_a_cut_is_in_the_next_one(tmp_path: Path) -> None:
    single = Single(tmp_path)
    for _ in range(5):
        single.holdings.begin_generation()
    single.push(list(range(100)))
    single.written("a")
    single.declare(ADAM)
    single.push(list(range(50)), table=1, columns=1)
    single.written("b", base="a")
    single.push([3], table=1, columns=1)
    single.written("c", base="b")

    found = fresh()
    snapshot_files.restore_rows(found, tmp_path, ALL)

    assert rows(found, "items") == rows(single.holdings, "items")
    assert len(rows(found, "items")) == 50


def test_a_cut_builds_upon_the_one_it_names_though_another_came_between(tmp_path: Path) -> None:
    single = Single(tmp_path)
    single.push(list(range(1000)))
    single.written("a")
    single.push([7])
    single.cut("given up", base="a")
    single.push([8])

    single.written("b", base="a")

    found = fresh()
    snapshot_files.restore_rows(found, tmp_path, ALL)
    assert rows(found) == rows(single.holdings)


def test_of_cuts_that_nobody_writes_two_are_kept(tmp_path: Path) -> None:
    single = Single(tmp_path)
    (tmp_path / "ps").mkdir()
    for cut in "abc":
        single.cut(cut)

    assert not single.keep("a").is_known
    assert single.keep("b", "b").bytes and single.keep("c", "c").bytes
    assert single.keep("b", "b").bytes, "it may be asked again"


def test_a_ps_that_was_restored_builds_upon_what_it_was_restored_from(tmp_path: Path) -> None:
    before = Single(tmp_path)
    before.push(list(range(2000)))
    before.written("a")
    after = Single(tmp_path)
    after.chain, after.entries = before.chain, before.entries
    after.keeper.set_restored(snapshot_files.restore_rows(after.holdings, tmp_path, ALL).snapshot_id, ALL)
    after.push([1, 5000])

    assert after.written("b", base="a").rows < 400
    found = fresh()
    snapshot_files.restore_rows(found, tmp_path, ALL)
    assert rows(found) == rows(after.holdings)
    assert len(rows(found)) == 2001


def test_slots_that_arrive_while_a_cut_is_made_are_whole_in_the_next(tmp_path: Path) -> None:
    halves = SlotMap.initial([HERE, THERE])
    source, target = Single(tmp_path / "source", halves), Single(tmp_path, SlotMap.initial([HERE, THERE]), THERE)
    ids = [one for one in range(300)]
    mine = [one for one, row in zip(ids, slots_of(ids), strict=True) if halves.owner[row] == HERE]
    source.push(mine)
    for _, pieces in source.holdings.changed_rows(slot_mask(ALL), 0):
        target.holdings.load_rows(pieces)
    target.cut("a")
    target.holdings.set_slot_map(SlotMap(2, (THERE,) * SLOTS))

    taken = target.cut("b", base="a")

    assert taken.rows == len(mine)


def slots_of(ids: list[int]) -> list[int]:
    return _native.slots(np.array(ids, np.int64)).tolist()


def test_rows_that_were_dropped_do_not_come_back_from_before_the_slot_was_whole(tmp_path: Path) -> None:
    single = Single(tmp_path)
    single.push(list(range(1000)))
    single.written("a")
    single.holdings.drop_slots(slot_mask(ALL))
    for number in range(2, 10):
        single.written(str(number), base="a" if number == 2 else str(number - 1))

    found = fresh()
    snapshot_files.restore_rows(found, tmp_path, ALL)

    assert rows(found) == {}


def test_only_the_rows_of_the_slots_are_restored_and_their_marks(tmp_path: Path) -> None:
    single = Single(tmp_path)
    single.push(list(range(500)), number=3)
    single.written("a")
    found = fresh()

    snapshot_files.restore_rows(found, tmp_path, range(0, SLOTS, 2))

    assert set(rows(found)) == {one for one, slot in enumerate(slots_of(list(range(500)))) if slot % 2 == 0}
    assert not found.pack_applied_pushes(slot_mask(range(1, SLOTS, 2)))[1 + SLOTS // 2 :].any()
    even = slot_mask(range(0, SLOTS, 2))
    assert (found.pack_applied_pushes(even) == single.holdings.pack_applied_pushes(even)).all()


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    single = Single(tmp_path)
    single.push(list(range(500)))
    single.written("a")
    path = tmp_path / "ps" / "rows-1"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    found = fresh()

    with pytest.raises(CheckpointCorrupt, match=r"rows-1 is corrupt: expected sha256"):
        snapshot_files.restore_rows(found, tmp_path, ALL)
    path.write_bytes(content[:100])
    with pytest.raises(CheckpointCorrupt, match=r"rows-1 is torn"):
        snapshot_files.restore_rows(found, tmp_path, ALL)
    path.unlink()
    with pytest.raises(CheckpointCorrupt, match="rows-1 cannot be read"):
        snapshot_files.restore_rows(found, tmp_path, ALL)
    assert rows(found) == {}


def test_a_table_of_another_model_is_named(tmp_path: Path) -> None:
    single = Single(tmp_path)
    single.push([1])
    single.written("a")
    found = fresh()
    found.declare(json.dumps([SPEC.model_copy(update={"columns": 3}).model_dump()]).encode())

    with pytest.raises(SpecError, match=r"a checkpoint of another model: table users: expected columns 3 \(not 2\)"):
        snapshot_files.restore_rows(found, tmp_path, ALL)


def test_rows_that_do_not_fit_into_the_memory_are_refused(tmp_path: Path) -> None:
    single = Single(tmp_path)
    single.push(list(range(200_000)))
    single.written("a")

    with pytest.raises(SpecError, match=r"ps-7 cannot restore its rows: table users: .* raise the memory limit"):
        snapshot_files.restore_rows(fresh(memory_limit=100_000), tmp_path, ALL)


def test_a_checkpoint_without_rows_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / manifest.MANIFEST_FILE).write_text(Manifest("checkpoint", 1, 0, {}, {}, {}).render())

    with pytest.raises(SpecError, match="expected a checkpoint with rows of ps"):
        snapshot_files.restore_rows(fresh(), tmp_path, ALL)


def test_what_cannot_be_written_is_told_with_the_place_and_the_room(tmp_path: Path) -> None:
    single = Single(tmp_path)
    single.cut("a")

    with pytest.raises(RequestRefused, match=r"cannot write .*/ps/rows: No such file or directory \(.* MB free at"):
        single.keep("a")


@pytest.mark.parametrize("text", [b"", b"{}", b'{"snapshot_id": "a", "directory": "/tmp", "name": "../x"}'])
def test_a_wrong_request_is_refused(tmp_path: Path, text: bytes) -> None:
    answers = Single(tmp_path).keeper.handlers

    for kind in (MessageKind.SNAPSHOT, MessageKind.WRITE_SNAPSHOT):
        with pytest.raises(RequestRefused, match=kind.name):
            answers[kind](PsMessage(kind, 1, text=text))


def test_a_disk_that_is_full_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Future[FileEntry]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshot_files, "write_snapshot", full)
    single = Single(tmp_path)
    single.cut("a")

    with pytest.raises(RequestRefused, match="No space left on device"):
        single.keep("a")
