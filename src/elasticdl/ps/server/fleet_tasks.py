"""The tasks of a ps for its fleet: move slots, make a backup, promote a backup, restore from a checkpoint.

A thread of its own executes one task at a time; workers are served meanwhile.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue

import zmq

from elasticdl.checkpoint import manifest
from elasticdl.errors import ElasticDLError
from elasticdl.faults import Faults
from elasticdl.ps import _native
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.server.slot_transfer import create_backup, move_slots
from elasticdl.ps.snapshots import snapshot_files
from elasticdl.ps.tables import push_statistics
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.wire.connections import PsConnections
from elasticdl.ps.wire.keys import CurveKeys
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import PsId
from elasticdl.storage.paths import AnyPath, parse_path
from elasticdl.vital import VitalThread

UNKNOWN_COUNT = -1


class FleetTaskExecutor:
    """Executes tasks. `counters` is the directory in which each ps of the job counts acknowledged pushes."""

    def __init__(
        self,
        ps_state: PsState,
        token: str,
        timeout_s: float,
        counters: Path,
        faults: Faults | None = None,
        keys: CurveKeys | None = None,
        on_restored: Callable[[str, Sequence[int]], None] = lambda snapshot_id, slots: None,
    ) -> None:
        self._ps_state = ps_state
        self._token = token
        self._timeout_s = timeout_s
        self._counters = counters
        self._faults = faults or Faults()
        self._keys = keys
        self._lock = threading.Lock()  # guards the connections of the task under way
        self._connections: PsConnections | None = None
        self._on_restored = on_restored  # called before the rows are used: the next snapshot may build upon this one

    def execute(self, task: pb.FleetTask) -> pb.TaskReport:
        """Executes a task. If it fails, the report says why, and the old slot map stays in force."""
        fleet = FleetView.from_proto(task.fleet)
        self._faults.inject(fleet.version, "assigned")
        try:
            done = self._do(task, fleet)
        except (ElasticDLError, _native.MemoryLimit, OSError) as exc:
            done = pb.TaskReport(failure=str(exc) or type(exc).__name__)
        done.version = fleet.version
        self._faults.inject(fleet.version, "completed")
        return done

    def update_fleet(self, fleet: FleetView) -> None:
        """Takes over a newer fleet, so that a task does not wait for a lost ps. For any thread."""
        with self._lock:
            if self._connections is not None:
                self._connections.mark_lost(fleet.lost)

    def _do(self, task: pb.FleetTask, fleet: FleetView) -> pb.TaskReport:
        if task.promote:
            rows = self._ps_state.promote_backup(PsId(task.promote), fleet.slot_map)
            return pb.TaskReport(rows=rows)
        if not task.target:
            return self._restore(task.restore, list(task.slots), fleet)
        with self._lock:
            connections = PsConnections(
                fleet.addresses, self._token, self._timeout_s, self._keys, context=zmq.Context.instance()
            ).open()
            self._connections = connections
        try:
            if task.backup:
                moved = create_backup(self._ps_state, PsId(task.target), connections)
                self._ps_state.set_slot_map(fleet.slot_map)
            else:
                moved = move_slots(self._ps_state, list(task.slots), PsId(task.target), connections, fleet.slot_map)
        finally:
            with self._lock:
                self._connections = None
                connections.close()
        return pb.TaskReport(rows=moved.rows, pause_s=moved.pause_s)

    def _restore(self, directory: str, slots: Sequence[int], fleet: FleetView) -> pb.TaskReport:
        """Restores rows from a checkpoint; rows that are not in one start again from their initial values."""
        previous_owner = self._ps_state.slot_map.owner[slots[0]]
        rows, applied = 0, 0
        checkpoint = parse_path(directory) if directory else None
        if checkpoint is not None and _has_rows(checkpoint):
            rows, applied, snapshot_id = snapshot_files.restore_rows(
                self._ps_state, snapshot_files.fetch_snapshot(checkpoint), slots
            )
            self._on_restored(snapshot_id, slots)
        self._ps_state.set_slot_map(fleet.slot_map)
        if previous_owner == self._ps_state.name:
            return pb.TaskReport(rows=rows)  # the first rows of a resumed job: nothing is rolled back
        return pb.TaskReport(rows=rows, rolled_back=self._count_lost_pushes(previous_owner, applied))

    def _count_lost_pushes(self, lost: PsId, applied: int) -> int:
        """Counts the pushes that the lost ps has acknowledged and that are not in the snapshot."""
        try:
            return max(0, push_statistics.read_push_count(self._counters / lost).applied - applied)
        except (OSError, struct.error):
            return UNKNOWN_COUNT


def _has_rows(checkpoint: AnyPath) -> bool:
    """Whether the checkpoint has rows of ps: the job may not have had tables yet."""
    return snapshot_files.INDEX_FILE in manifest.read_manifest(checkpoint / manifest.MANIFEST_FILE).files


class FleetTaskQueue:
    """Executes tasks in the order of the fleet versions, each once, in a thread of its own."""

    def __init__(
        self,
        execute: Callable[[pb.FleetTask], pb.TaskReport],
        answer: Callable[[pb.TaskReport], None],
        on_crash: Callable[[Exception], None],
    ) -> None:
        self._execute = execute
        self._answer = answer
        self._on_crash = on_crash
        self._newest = 0
        self._waiting: SimpleQueue[pb.FleetTask] = SimpleQueue()
        self._thread = VitalThread(self._run, name="ps-tasks")

    def start(self) -> None:
        self._thread.start()

    def put(self, task: pb.FleetTask) -> None:
        """Adds a task, unless it was added before. Called from the session's thread only."""
        if task.fleet.version > self._newest:
            self._newest = task.fleet.version
            self._waiting.put(task)

    def _run(self) -> None:
        try:
            while True:
                self._answer(self._execute(self._waiting.get()))
        except Exception as exc:
            self._on_crash(exc)
