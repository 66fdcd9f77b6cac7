"""A fleet of ps in this process that takes snapshots, and the expected values of its rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elasticdl.checkpoint import manifest, staging
from elasticdl.checkpoint.manifest import Manifest
from elasticdl.ps import _native
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.server.ps_server import PsServer
from elasticdl.ps.server.slot_transfer import move_slots
from elasticdl.ps.slots import SLOTS, SlotMap, SlotMove
from elasticdl.ps.snapshots import snapshot_files
from elasticdl.ps.snapshots.coordinator import SnapshotCoordinator, StartedSnapshot
from elasticdl.ps.snapshots.writer import SnapshotWriter
from elasticdl.ps.tables.applied_pushes import slot_mask
from elasticdl.ps.tables.initializer import Initializer
from elasticdl.ps.tables.optimizer import Optimizer
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire.connections import PsConnections
from elasticdl.ps.wire.messages import MessageKind, PsMessage, ReplyStatus, TablePart
from elasticdl.spec import PsId
from elasticdl.storage.paths import StorePath
from tests.ps_requests import apply_moves, reply_to

ZEROS = Initializer(kind="zeros")
TABLES = [
    TableSpec(name="sums", columns=2, initializer=ZEROS),
    TableSpec(name="squares", columns=1, initializer=ZEROS, optimizer=Optimizer(rule="adagrad")),
]
ALL = slot_mask(range(SLOTS))
Rows = dict[str, dict[int, tuple[tuple[float, ...], tuple[float, ...]]]]


def declare_tables(holdings: PsState, tables: Sequence[TableSpec] = TABLES) -> PsState:
    holdings.declare(json.dumps([table.model_dump() for table in tables]).encode())
    return holdings


def rows_of(*held: PsState) -> Rows:
    """Every row of these ps: values and optimizer state, by table and id."""
    rows: Rows = {}
    for holdings in held:
        for spec, (values, state) in holdings.changed_rows(ALL, 0):
            table = rows.setdefault(spec.name, {})
            for row_id, row, optimizer_state in zip(values.ids, values.rows, state.rows, strict=True):
                assert int(row_id) not in table, "a row is on one ps only"
                table[int(row_id)] = (tuple(row.tolist()), tuple(optimizer_state.tolist()))
    return rows


def expected(pushes: Counter[int]) -> Rows:
    """Rows after `pushes` gradients of one for each id: the sums, and the accumulator of Adagrad."""
    if not pushes:
        return {}
    values = {row_id: float(sum(-1.0 / np.sqrt(n + 1) for n in range(count))) for row_id, count in pushes.items()}
    return {
        "sums": {row_id: ((-float(count),) * 2, ()) for row_id, count in pushes.items()},
        "squares": {row_id: ((values[row_id],), (float(count),)) for row_id, count in pushes.items()},
    }


def assert_equal_rows(actual: Rows, expected: Rows) -> None:
    assert {name: set(table) for name, table in actual.items()} == {
        name: set(table) for name, table in expected.items()
    }
    for name, table in expected.items():
        for row_id, (values, state) in table.items():
            np.testing.assert_allclose(actual[name][row_id][0], values, rtol=1e-5)
            assert actual[name][row_id][1] == state


class LocalFleet:
    """Several ps in this process, their slot map, and a directory of checkpoints."""

    def __init__(self, directory: Path, count: int, threads: int = 2) -> None:
        self.directory = directory
        self.threads = threads
        self.start(count)

    def start(self, count: int) -> None:
        self.holdings: dict[PsId, PsState] = {}
        self.writers: dict[PsId, SnapshotWriter] = {}
        self.servers: dict[PsId, PsServer] = {}
        self.map = SlotMap.initial([self.add() for _ in range(count)])
        for holdings in self.holdings.values():
            holdings.set_slot_map(self.map)
        self.coordinator = SnapshotCoordinator(self.view, "token", 30.0).open()
        self.newest: Path | StorePath | None = None
        self.pushes: Counter[int] = Counter()
        self.number = 0

    def add(self) -> PsId:
        name = PsId(f"ps-{len(self.holdings)}")
        self.holdings[name] = declare_tables(PsState(name, seed=3))
        self.writers[name] = SnapshotWriter(self.holdings[name])
        self.servers[name] = PsServer(
            self.holdings[name], "token", "127.0.0.1", threads=self.threads, answers=self.writers[name].handlers
        ).start()
        return name

    def restart(self, path: Path, count: int, pushes: Counter[int], number: int) -> None:
        """Replaces all ps by `count` new ones with the rows of a checkpoint, which contains these pushes."""
        self.close()
        self.start(count)
        for name, holdings in self.holdings.items():
            slots = self.map.slots_of(name)
            self.writers[name].set_restored(snapshot_files.restore_rows(holdings, path, slots).snapshot_id, slots)
        self.newest, self.pushes, self.number = path, Counter(pushes), number

    def view(self) -> FleetView:
        return FleetView(self.map, {name: server.address for name, server in self.servers.items()}, {})

    def push(self, ids: Sequence[int]) -> None:
        self.number += 1
        self.send(self.number, ids, self.holdings, self.map)
        self.pushes.update(set(ids))

    def send(self, number: int, ids: Sequence[int], holdings: dict[PsId, PsState], slot_map: SlotMap) -> None:
        distinct = np.unique(np.array(ids, np.int64))
        owners = np.array(slot_map.owner)[_native.slots(distinct)]
        for name in sorted(set(owners.tolist())):
            mine = distinct[owners == name]
            parts = tuple(TablePart(n, mine, np.ones((len(mine), t.columns), np.float32)) for n, t in enumerate(TABLES))
            message = PsMessage(
                MessageKind.PUSH,
                1,
                slot_map.version,
                sender=1,
                push_number=number,
                learning_rate=1.0,
                step=number,
                parts=parts,
            )
            assert reply_to(holdings[PsId(name)], message).status is ReplyStatus.OK

    def move(self, slots: Sequence[int], target: PsId) -> None:
        connections = PsConnections(self.view().addresses, "token", 30.0).open()
        for source in {self.map.owner[slot] for slot in slots} - {target}:
            moves = [SlotMove(slot, source, target) for slot in slots if self.map.owner[slot] == source]
            slot_map = apply_moves(self.map, moves)
            move_slots(self.holdings[source], [move.slot for move in moves], target, connections, slot_map)
            self.map = slot_map
        connections.close()

    def begin(self, step: int) -> StartedSnapshot:
        return self.coordinator.begin(step, self.newest)

    def finish(self, begun: StartedSnapshot) -> Path:
        target = self.directory / manifest.checkpoint_name(begun.step)
        with staging.staged_directory(target) as directory:
            files = self.coordinator.finish(begun, directory, self.newest, target)
            (directory / manifest.MANIFEST_FILE).write_text(
                Manifest("checkpoint", begun.step, 0, files, {}, {}).render()
            )
        self.newest = target
        return target

    def write_checkpoint(self, step: int) -> Path:
        return self.finish(self.begin(step))

    def close(self) -> None:
        self.coordinator.close()
        for server in self.servers.values():
            server.close()
        for writer in self.writers.values():
            writer.close()


def restore_rows(path: Path, count: int, tables: Sequence[TableSpec] = ()) -> tuple[dict[PsId, PsState], SlotMap]:
    """Restores the rows of a checkpoint into `count` new ps."""
    names = [PsId(f"ps-{10 + n}") for n in range(count)]
    slot_map = SlotMap.initial(names)
    holdings = {}
    for name in names:
        holdings[name] = declare_tables(PsState(name, seed=3), tables)
        holdings[name].set_slot_map(slot_map)
        snapshot_files.restore_rows(holdings[name], path, slot_map.slots_of(name))
    return holdings, slot_map
