"""Slots move while workers train: no row is lost, no gradient counts twice or not at all."""

from __future__ import annotations

import threading
from collections import Counter

import numpy as np

from elasticdl.ps.slots import SLOTS
from elasticdl.ps.tables.initializer import Initializer
from elasticdl.ps.tables.optimizer import Optimizer
from elasticdl.ps.tables.table import TableSpec
from elasticdl.spec import PsId
from tests.integration.ps.cluster import TABLES, Cluster, pull, push
from tests.integration.ps.conftest import Start

SUMS = TableSpec(name="sums", columns=2, initializer=Initializer(kind="zeros"))


def test_rows_move_with_their_slots_and_clients_follow(start: Start) -> None:
    cluster = start(1)
    first = cluster.client()
    first.declare(TABLES)
    plans = {"users": first.plan(np.arange(5000)), "items": first.plan(np.arange(200))}
    pull(first, plans)
    sums = {name: np.ones((len(plan.ids), 4 if name == "users" else 2), np.float32) for name, plan in plans.items()}
    push(first, plans, sums, number=1, rate=0.5)
    before = pull(first, plans)
    second = cluster.add()
    first.update_fleet(cluster.fleet)
    moved = cluster.rebalance([PsId("ps-0"), second])

    held = [state.status() for state in cluster.holdings.values()]
    assert [status["slots"] for status in held] == [SLOTS // 2, SLOTS // 2]
    assert sum(status["tables"]["users"]["rows"] for status in held) == 5000
    assert (
        sum(result.rows for result in moved) == held[1]["tables"]["users"]["rows"] + held[1]["tables"]["items"]["rows"]
    )
    after = pull(first, plans)
    assert first.redirects == 1, "it was redirected to the owners of the slots"
    assert all((after[name] == before[name]).all() for name in plans)
    push(first, plans, sums, number=2, rate=0.5)
    assert (pull(first, plans)["users"] == 0.0).all()
    expected = np.abs(after["items"] - before["items"]).max()
    assert expected == 0.0


def test_a_ps_that_is_drained_holds_nothing(start: Start) -> None:
    cluster = start(3)
    client = cluster.client()
    client.declare(TABLES)
    plans = {"users": client.plan(np.arange(3000))}
    before = pull(client, plans)
    cluster.rebalance([PsId("ps-0"), PsId("ps-2")])

    drained = cluster.holdings[PsId("ps-1")].status()
    assert (drained["slots"], drained["tables"]["users"]["rows"]) == (0, 0)
    assert (pull(client, plans)["users"] == before["users"]).all()


def test_every_gradient_counts_once_while_slots_move_back_and_forth(start: Start) -> None:
    cluster, workers, batches = start(2), 3, 60
    spare = cluster.add()
    pushed: list[Counter[int]] = [Counter() for _ in range(workers)]
    failures: list[BaseException] = []

    def train(worker: int) -> None:
        try:
            client = cluster.client()
            client.declare([SUMS])
            random = np.random.default_rng(worker)
            pending = []
            for step in range(1, batches + 1):
                ids = random.integers(-400, 400, 600)
                plans = {"sums": client.plan(ids)}
                pull(client, plans)
                sums = {"sums": plans["sums"].sum_gradients(np.ones((600, 2), np.float32))}
                pending.append(client.begin_push(plans, sums, sender=worker, number=step, rate=1.0, step=step))
                pushed[worker].update(ids.tolist())
                if len(pending) > 2:
                    client.finish_push(pending.pop(0))
            for push_handle in pending:
                client.finish_push(push_handle)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=train, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    everyone = [PsId("ps-0"), PsId("ps-1"), spare]
    moves = 0
    while any(thread.is_alive() for thread in threads):
        members = everyone if moves % 2 else everyone[moves % 3 :] or everyone
        moves += len(cluster.rebalance(members))
    for thread in threads:
        thread.join()

    assert not failures, failures
    assert moves > 2
    assert rows_of(cluster) == {row_id: -float(count) for row_id, count in sum(pushed, Counter()).items()}
    assert sum(held.push_count for held in cluster.holdings.values()) >= workers * batches


def rows_of(cluster: Cluster) -> dict[int, float]:
    client = cluster.client()
    client.declare([SUMS])
    plan = client.plan(np.arange(-400, 400))
    rows = pull(client, {"sums": plan})["sums"]
    assert (rows[:, 0] == rows[:, 1]).all()
    return {int(row_id): float(row[0]) for row_id, row in zip(plan.ids, rows, strict=True) if row[0]}


def test_optimizer_state_moves_with_the_rows(start: Start) -> None:
    table = TableSpec(name="t", columns=3, optimizer=Optimizer(rule="adam"))
    results = []
    for moves in (False, True):
        cluster = start(2)
        client = cluster.client()
        client.declare([table])
        plans = {"t": client.plan(np.arange(500))}
        gradients = np.random.default_rng(2).standard_normal((6, 500, 3)).astype(np.float32)
        for step in range(6):
            plan = client.plan(np.arange(500))
            push(client, {"t": plan}, {"t": gradients[step][plan.ids]}, number=step + 1, rate=0.1)
            if moves:
                cluster.rebalance([PsId(f"ps-{step % 2}")])
        plans = {"t": client.plan(np.arange(500))}
        rows = pull(client, plans)["t"]
        results.append(rows[plans["t"].inverse])
    assert (results[0] == results[1]).all()
