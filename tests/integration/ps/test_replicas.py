"""When a ps dies, every acknowledged push is in the rows of its backup exactly once."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter

import numpy as np
import pytest

from elasticdl.ps.server.slot_transfer import create_backup
from elasticdl.ps.snapshots.writer import SnapshotRequest, SnapshotWriter
from elasticdl.ps.tables.initializer import Initializer
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire.connections import PsConnections, PsUnreachable
from elasticdl.ps.wire.messages import MessageKind, PsMessage
from elasticdl.spec import PsId
from tests.integration.ps.cluster import TABLES, TOKEN, Cluster, pull, push
from tests.integration.ps.conftest import Start

SUMS = TableSpec(name="sums", columns=2, initializer=Initializer(kind="zeros"))
IDS = 300


def test_a_promoted_backup_has_the_rows_and_their_optimizer_state(start: Start) -> None:
    cluster = start(2)
    client = cluster.client()
    client.declare(TABLES)
    plans = {"users": client.plan(np.arange(2000)), "items": client.plan(np.arange(500))}
    sums = {name: np.ones((len(plan.ids), 4 if name == "users" else 2), np.float32) for name, plan in plans.items()}
    push(client, plans, sums, number=1)
    cluster.back_up()
    push(client, plans, sums, number=2)
    before = pull(client, plans)
    cluster.kill(PsId("ps-0"))
    rows = cluster.promote(PsId("ps-0"))
    client.update_fleet(cluster.fleet)

    again = {name: client.plan(plan.ids) for name, plan in plans.items()}
    after = pull(client, again)
    assert rows == sum(plan.counts[0] for plan in plans.values())
    for name in plans:
        assert (after[name][again[name].inverse] == before[name]).all(), name
    assert push(client, again, {name: sums[name] for name in again}, number=2), "it is in the rows already"
    assert (pull(client, again)["users"] == after["users"]).all()


def test_a_push_in_flight_is_answered_by_the_promoted_backup(start: Start) -> None:
    cluster = start(2)
    client = cluster.client()
    client.declare([SUMS])
    cluster.back_up()
    plan = client.plan(np.arange(IDS))
    cluster.kill(PsId("ps-1"))
    pending = client.begin_push(
        {"sums": plan}, {"sums": np.ones((IDS, 2), np.float32)}, sender=1, number=1, rate=1.0, step=1
    )
    promotion = threading.Timer(0.2, lambda: (cluster.promote(PsId("ps-1")), client.update_fleet(cluster.fleet)))
    promotion.start()

    assert client.finish_push(pending)

    promotion.join()
    assert rows_of(cluster) == dict.fromkeys(range(IDS), -1.0)


def test_a_fleet_update_without_a_new_owner_does_not_end_the_wait(start: Start) -> None:
    cluster = start(2)
    client = cluster.client(timeout_s=0.5)
    client.declare([SUMS])
    cluster.kill(PsId("ps-1"))
    client.update_fleet(cluster.fleet)
    with pytest.raises(PsUnreachable, match=r"ps-1: no answer within 0\.5 s"):
        pull(client, {"sums": client.plan(np.arange(IDS))})


def test_a_backup_that_does_not_respond_is_dropped_and_named(start: Start) -> None:
    cluster = start(2)
    client = cluster.client()
    client.declare([SUMS])
    cluster.back_up()
    cluster.kill(PsId("ps-1"))
    cluster.restart(PsId("ps-0"), backup_timeout_s=0.3)
    client = cluster.client()
    client.declare([SUMS])
    plan = client.plan(np.arange(IDS))
    mine = {"sums": client.plan(plan.ids[: plan.counts[0]])}
    assert push(client, mine, {"sums": np.ones((plan.counts[0], 2), np.float32)}, number=1)

    status = cluster.holdings[PsId("ps-0")].status()
    assert (status["backup"], status["backup_failure"]) == ("", "ps-1: no answer within 0.3 s")


def test_an_owner_that_was_declared_lost_accepts_no_more_pushes(start: Start) -> None:
    cluster = start(2)
    client = cluster.client()
    client.declare([SUMS])
    cluster.back_up()
    plans = {"sums": client.plan(np.arange(IDS))}
    still_there = cluster.holdings[PsId("ps-0")]
    cluster.promote(PsId("ps-0"))

    assert push(client, plans, {"sums": np.ones((IDS, 2), np.float32)}, number=1)

    assert still_there.status()["slots"] == 0
    assert client.redirects == 1
    assert rows_of(cluster) == dict.fromkeys(range(IDS), -1.0)


def test_backups_move_with_their_slots(start: Start) -> None:
    cluster = start(3)
    client = cluster.client()
    client.declare([SUMS])
    cluster.back_up()
    plans = {"sums": client.plan(np.arange(IDS))}
    push(client, plans, {"sums": np.ones((IDS, 2), np.float32)}, number=1)
    cluster.rebalance([PsId("ps-1"), PsId("ps-2")])
    client.update_fleet(cluster.fleet)
    push(client, plans, {"sums": np.ones((IDS, 2), np.float32)}, number=2)
    copies = [sum(state.status()["backup_rows"].values()) for state in cluster.holdings.values()]
    owned = [state.status()["tables"]["sums"]["rows"] for state in cluster.holdings.values()]
    assert owned[0] == 0
    assert copies == [owned[2], owned[0], owned[1]], "each holds the copies of the one before, and nothing else"
    cluster.kill(PsId("ps-1"))
    cluster.promote(PsId("ps-1"))
    client.update_fleet(cluster.fleet)

    assert rows_of(cluster) == dict.fromkeys(range(IDS), -2.0)


def test_inserted_rows_are_the_same_in_the_backup(start: Start) -> None:
    cluster = start(2)
    client = cluster.client()
    client.declare(TABLES)
    cluster.back_up()
    ids, plan = np.arange(100), client.plan(np.arange(50))
    pull(client, {"users": plan})  # makes rows, which the copy has not before somebody pushes
    client.insert_rows("users", ids, np.full((100, 4), 7.0, np.float32))
    before = client.plan(ids)
    rows = pull(client, {"users": before})["users"][before.inverse]
    cluster.kill(PsId("ps-1"))
    cluster.promote(PsId("ps-1"))
    client.update_fleet(cluster.fleet)

    after = client.plan(ids)
    assert rows[:, 0].tolist() == [1.0] * 50 + [7.0] * 50
    assert (pull(client, {"users": after})["users"][after.inverse] == rows).all()


def test_slots_move_between_two_ps_that_back_up_each_other(start: Start) -> None:
    cluster, batches, has_moved = start(2), 0, threading.Event()
    cluster.back_up()
    failures: list[BaseException] = []
    client = cluster.client()

    def train() -> None:
        nonlocal batches
        try:
            client.declare([SUMS])
            sums = {"sums": np.ones((IDS, 2), np.float32)}
            while batches < 80 or not has_moved.is_set():
                batches += 1
                push(client, {"sums": client.plan(np.arange(IDS))}, sums, number=batches)
        except BaseException as exc:
            failures.append(exc)

    thread = threading.Thread(target=train)
    thread.start()
    first, second, moves = PsId("ps-0"), PsId("ps-1"), 0
    while thread.is_alive():
        moves += len(cluster.rebalance([[first], [first, second], [second], [second, first]][moves % 4]))
        if moves > 2:
            has_moved.set()
    thread.join()

    assert not failures, failures
    cluster.kill(first)
    cluster.promote(first)
    assert rows_of(cluster) == dict.fromkeys(range(IDS), -float(batches))


def test_two_ps_that_back_up_each_other_can_be_snapshotted_at_once(start: Start) -> None:
    cluster, workers, batches = start(2), 2, 60
    names = list(cluster.holdings)

    writers = {name: SnapshotWriter(cluster.holdings[name]) for name in names}
    for name, writer in writers.items():  # one thread each: it must serve the other's copy whatever it waits for
        cluster.restart(name, threads=1, answers=writer.handlers)
    cluster.back_up()
    failures: list[BaseException] = []

    def train(worker: int) -> None:
        try:
            client = cluster.client(timeout_s=8.0)
            client.declare([SUMS])
            plans, sums = {"sums": client.plan(np.arange(IDS))}, {"sums": np.ones((IDS, 2), np.float32)}
            pending = []
            for step in range(1, batches + 1):
                pending.append(client.begin_push(plans, sums, sender=worker, number=step, rate=1.0, step=step))
                if len(pending) > 3:
                    client.finish_push(pending.pop(0))
            for push_handle in pending:
                client.finish_push(push_handle)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=train, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    cuts = 0
    with PsConnections(cluster.addresses, TOKEN, 8.0) as connections:
        while any(thread.is_alive() for thread in threads):
            cuts += 1
            text = SnapshotRequest(snapshot_id=str(cuts), base_id="", number=cuts).model_dump_json().encode()
            connections.request_all(dict.fromkeys(names, PsMessage(MessageKind.SNAPSHOT, 0, text=text)))
    for thread in threads:
        thread.join()
    for writer in writers.values():
        writer.close()

    assert not failures, failures
    assert cuts > 3
    assert all(holdings.backup for holdings in cluster.holdings.values()), "no copy was given up"
    cluster.kill(names[0])
    cluster.promote(names[0])
    assert rows_of(cluster) == dict.fromkeys(range(IDS), -float(workers * batches))


@pytest.mark.parametrize("seed", range(6))
def test_whenever_a_ps_dies_every_push_counts_once(start: Start, seed: int) -> None:
    cluster, workers, batches = start(3), 2, 30
    random = np.random.default_rng(seed)
    victim, after = PsId(f"ps-{random.integers(3)}"), int(random.integers(1, workers * batches))
    cluster.back_up()
    pushed: list[Counter[int]] = [Counter() for _ in range(workers)]
    failures: list[BaseException] = []
    sent, clients = threading.Semaphore(0), [cluster.client() for _ in range(workers)]

    def train(worker: int) -> None:
        try:
            client, mine = clients[worker], np.random.default_rng(seed * 10 + worker)
            client.declare([SUMS])
            pending = []
            for step in range(1, batches + 1):
                ids = mine.integers(0, IDS, 200)
                plans = {"sums": client.plan(ids)}
                pull(client, plans)
                sums = {"sums": plans["sums"].sum_gradients(np.ones((200, 2), np.float32))}
                pending.append(client.begin_push(plans, sums, sender=worker, number=step, rate=1.0, step=step))
                pushed[worker].update(ids.tolist())
                sent.release()
                if len(pending) > 2:
                    assert client.finish_push(pending.pop(0))
            assert all(client.finish_push(push_handle) for push_handle in pending)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=train, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for _ in range(after):
        assert sent.acquire(timeout=30)
    cluster.kill(victim)
    cluster.promote(victim)
    for client in clients:
        client.update_fleet(cluster.fleet)
    cluster.back_up()
    for thread in threads:
        thread.join()

    assert not failures, failures
    expected = {row_id: -float(count) for row_id, count in sum(pushed, Counter()).items()}
    assert rows_of(cluster) == expected
    another = next(iter(cluster.holdings))
    cluster.kill(another)
    cluster.promote(another)
    assert rows_of(cluster) == expected, "the copies that were made anew are whole"


def rows_of(cluster: Cluster) -> dict[int, float]:
    client = cluster.client()
    client.declare([SUMS])
    plan = client.plan(np.arange(IDS))
    rows = pull(client, {"sums": plan})["sums"]
    assert (rows[:, 0] == rows[:, 1]).all()
    return {int(row_id): float(row[0]) for row_id, row in zip(plan.ids, rows, strict=True) if row[0]}


class Stalling:
    """Between a ps and another: bytes go through until `stall`; connections made later are not concerned."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        self._stalled = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        self._stalled.set()
        self._stalled = threading.Event()

    def close(self) -> None:
        for connection in (self._listener, *self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._connections += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(*pair, self._stalled), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, stalled: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while received := source.recv(1 << 16):
                if not stalled.is_set():
                    target.sendall(received)


def test_a_recreated_backup_uses_a_new_connection(start: Start) -> None:
    cluster = start(2)
    cluster.restart(PsId("ps-0"), threads=1, backup_timeout_s=1.0)
    client = cluster.client()
    client.declare([SUMS])
    plan = client.plan(np.arange(IDS))
    plans = {"sums": client.plan(plan.ids[: plan.counts[0]])}  # of ps-0
    ones = {"sums": np.ones((plan.counts[0], 2), np.float32)}
    owner = cluster.holdings[PsId("ps-0")]
    with contextlib.closing(Stalling(cluster.addresses[PsId("ps-1")])) as between:
        addresses = {PsId("ps-1"): between.address}
        with PsConnections(addresses, TOKEN, 30.0) as connections:
            create_backup(owner, PsId("ps-1"), connections)
        assert push(client, plans, ones, number=1)
        between.stall()
        assert push(client, plans, ones, number=2)
        assert "no answer" in owner.backup_failure
        with PsConnections(addresses, TOKEN, 30.0) as connections:
            create_backup(owner, PsId("ps-1"), connections)

        assert push(client, plans, ones, number=3)

        assert (owner.status()["backup"], owner.backup_failure) == ("ps-1", "")
