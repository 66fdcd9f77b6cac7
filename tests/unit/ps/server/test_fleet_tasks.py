"""Tasks of a fleet at the ps that performs them, with real rows and a real socket to the other one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

from elasticdl.faults import Faults
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.server.fleet_tasks import UNKNOWN_COUNT, FleetTaskExecutor, FleetTaskQueue
from elasticdl.ps.server.master_client import BackupCleaner
from elasticdl.ps.server.ps_server import PsServer
from elasticdl.ps.slots import SLOTS, SlotMap
from elasticdl.ps.tables.push_statistics import PushCountFile
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.wire.messages import NO_ROWS, MessageKind, PsMessage, TablePart
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import PsId
from tests.ps_requests import reply_to

HERE, THERE = PsId("ps-0"), PsId("ps-1")
IDS = np.arange(64, dtype=np.int64)


class Pair:
    """`here` owns all slots, and has rows; `there` owns nothing."""

    def __init__(self, counters: Path) -> None:
        self.here, self.there = PsState(HERE, seed=1), PsState(THERE, seed=1)
        self.map = SlotMap(1, (HERE,) * SLOTS)
        for holdings in (self.here, self.there):
            holdings.set_slot_map(self.map)
        self.here.declare(b'[{"name": "users", "columns": 2}]')
        reply_to(self.here, PsMessage(MessageKind.PULL, 1, 1, parts=(TablePart(0, IDS, NO_ROWS),)))
        self.servers = {h.name: PsServer(h, "token", "127.0.0.1", threads=1).start() for h in (self.here, self.there)}
        self.counters = counters

    def task(self, owner: PsId = HERE, **fields: object) -> pb.FleetTask:
        addresses = {name: server.address for name, server in self.servers.items()}
        fleet = FleetView(SlotMap(2, (owner,) * SLOTS), addresses, {})
        return pb.FleetTask(fleet=fleet.to_proto(), **fields)  # type: ignore[arg-type]

    def perform(
        self, holdings: PsState, task: pb.FleetTask, faults: str = "", timeout_s: float = 30.0
    ) -> pb.TaskReport:
        performer = FleetTaskExecutor(holdings, "token", timeout_s, self.counters, Faults.parse(faults, holdings.name))
        return performer.execute(task)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    servers = Pair(tmp_path)
    yield servers
    for server in servers.servers.values():
        server.close()


def test_slots_that_are_moved_are_there_with_their_rows_and_no_longer_here(pair: Pair) -> None:
    done = pair.perform(pair.here, pair.task(THERE, target=THERE, slots=range(SLOTS)))

    assert (done.version, done.failure, done.rows) == (2, "", len(IDS))
    assert pair.here.slot_map.version == pair.there.slot_map.version == 2
    assert (pair.here.heartbeat()["rows"], pair.there.heartbeat()["rows"]) == (0, len(IDS))


def test_a_move_to_a_ps_that_is_gone_says_why_and_changes_nothing(pair: Pair) -> None:
    task = pair.task(THERE, target=THERE, slots=range(SLOTS))
    pair.servers.pop(THERE).close()

    done = pair.perform(pair.here, task, timeout_s=0.2)

    assert done.version == 2 and "ps-1: no answer within 0.2 s" in done.failure
    assert pair.here.slot_map.version == 1 and pair.here.heartbeat()["rows"] == len(IDS)


def test_copies_are_promoted_with_all_rows(pair: Pair) -> None:
    backed_up = pair.perform(pair.here, pair.task(target=THERE, backup=True))
    assert (backed_up.failure, backed_up.rows, pair.here.slot_map.version) == ("", len(IDS), 2)

    promotion = pair.task(THERE, promote=HERE)
    promotion.fleet.version = 3
    done = pair.perform(pair.there, promotion)

    assert (done.version, done.rows, done.failure) == (3, len(IDS), "")
    assert pair.there.slot_map.members == [THERE]


def test_nobody_waits_for_copies_that_the_fleet_does_not_know_of(pair: Pair) -> None:
    pair.perform(pair.here, pair.task(target=THERE, backup=True))
    copies = BackupCleaner(pair.here)
    addresses = {name: server.address for name, server in pair.servers.items()}

    copies.update_fleet(FleetView(pair.here.slot_map, addresses, {HERE: THERE}))
    assert pair.here.backup is not None
    copies.update_fleet(FleetView(pair.here.slot_map, addresses, {}, frozenset({THERE})))

    assert pair.here.backup is None


def test_copies_that_another_one_holds_now_are_dropped(pair: Pair) -> None:
    pair.perform(pair.here, pair.task(target=THERE, backup=True))
    copies = BackupCleaner(pair.there)
    addresses = {name: server.address for name, server in pair.servers.items()}

    copies.update_fleet(FleetView(pair.here.slot_map, addresses, {HERE: THERE}))
    assert pair.there.status()["backup_rows"] == {HERE: len(IDS)}
    copies.update_fleet(FleetView(pair.here.slot_map, addresses, {HERE: PsId("ps-2")}))

    assert pair.there.status()["backup_rows"] == {}


def test_slots_that_begin_anew_tell_how_many_updates_are_rolled_back(pair: Pair) -> None:
    PushCountFile.create(pair.counters / HERE).write(12, 12)

    done = pair.perform(pair.there, pair.task(THERE, slots=range(SLOTS)))

    assert (done.version, done.rows, done.rolled_back, done.failure) == (2, 0, 12, "")
    assert pair.there.slot_map.members == [THERE]


def test_without_its_counter_nobody_knows_what_a_ps_had_acknowledged(pair: Pair) -> None:
    done = pair.perform(pair.there, pair.task(THERE, slots=range(SLOTS)))

    assert done.rolled_back == UNKNOWN_COUNT


def test_a_fault_strikes_before_a_task_or_after_it(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    struck: list[tuple[int, int]] = []
    monkeypatch.setattr("os.kill", lambda pid, number: struck.append((number, pair.here.slot_map.version)))

    pair.perform(
        pair.here,
        pair.task(THERE, target=THERE, slots=range(SLOTS)),
        "ps-0@2:assigned=SIGKILL,ps-0@2:completed=SIGTERM,ps-0@3:assigned=SIGSTOP",
    )

    assert struck == [(signal.SIGKILL, 1), (signal.SIGTERM, 2)]


def never(received: object) -> None:
    pytest.fail(f"received {received}")


def test_a_task_that_is_given_again_is_done_once() -> None:
    answers: SimpleQueue[int] = SimpleQueue()
    tasks = FleetTaskQueue(
        lambda task: pb.TaskReport(version=task.fleet.version), lambda done: answers.put(done.version), never
    )
    tasks.start()

    for version in (2, 2, 3, 2):
        tasks.put(pb.FleetTask(fleet=pb.Fleet(version=version)))

    assert [answers.get(timeout=30), answers.get(timeout=30)] == [2, 3]
    assert answers.empty()


def test_an_error_of_ours_ends_the_ps() -> None:
    crashes: SimpleQueue[Exception] = SimpleQueue()

    def fail(task: pb.FleetTask) -> pb.TaskReport:
        raise KeyError("ours")

    tasks = FleetTaskQueue(fail, never, crashes.put)
    tasks.start()
    tasks.put(pb.FleetTask(fleet=pb.Fleet(version=2)))

    assert isinstance(crashes.get(timeout=30), KeyError)
