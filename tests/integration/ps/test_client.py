"""Requests of a worker to ps other than pulls and pushes, and updates of its view of the fleet."""

from __future__ import annotations

import errno
import socket
import threading
import time
from typing import Any

import numpy as np
import pytest
import zmq

from elasticdl.ps.slots import SlotMap
from elasticdl.ps.tables.initializer import Initializer
from elasticdl.ps.tables.push_policy import PushPolicy
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire import authentication
from elasticdl.ps.wire.connections import PsConnections, PsRefused, PsUnreachable
from elasticdl.ps.wire.messages import NO_IDS, MessageKind, PsMessage, ReplyStatus, TablePart
from elasticdl.spec import PsId
from tests.integration.ps.cluster import TABLES, pull, push
from tests.integration.ps.conftest import Start

SUMS = TableSpec(name="sums", columns=2, initializer=Initializer(kind="zeros"))


def test_the_first_inserted_values_of_a_row_are_kept(start: Start) -> None:
    cluster = start(2)
    first, second = cluster.client(), cluster.client()
    first.declare(TABLES)
    second.declare(TABLES)
    ids = np.array([5, 900, 5, 17], np.int64)
    first.insert_rows("users", ids, np.arange(16, dtype=np.float32).reshape(4, 4))
    second.insert_rows("users", np.array([17, 18]), np.full((2, 4), 99.0, np.float32))

    plan = second.plan(np.array([5, 900, 17, 18]))
    rows = pull(second, {"users": plan})["users"][plan.inverse]
    assert rows[:, 0].tolist() == [0.0, 4.0, 12.0, 99.0]


@pytest.mark.parametrize(("transport", "error"), [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_rows_and_gradients_are_sent_with_16_bits_if_a_worker_wants_it(
    start: Start, transport: str, error: float
) -> None:
    cluster = start(2)
    narrow, wide = cluster.client(transport=transport), cluster.client()
    for client in (narrow, wide):
        client.declare([SUMS])
    plan = narrow.plan(np.arange(1000))
    gradients = np.random.default_rng(1).uniform(0.5, 1.5, (1000, 2)).astype(np.float32)
    push(narrow, {"sums": plan}, {"sums": gradients}, number=1)
    pushed, pulled = pull(wide, {"sums": plan})["sums"], pull(narrow, {"sums": plan})["sums"]

    assert 0 < np.max(np.abs(pushed + gradients) / gradients) <= error
    assert (pulled == pushed).all(), "what came with 16 bits fits into 16 bits"


def test_a_stale_push_is_computed_again_under_its_number(start: Start) -> None:
    cluster = start(2, PushPolicy(max_staleness=1))
    client = cluster.client()
    client.declare([SUMS])
    ids = np.arange(100)
    plans, ones = {"sums": client.plan(ids)}, {"sums": np.ones((100, 2), np.float32)}
    pending = client.begin_pull(plans)
    client.finish_pull(plans, pending)
    for number in (1, 2):  # others, at one of the two ps
        alone = client.plan(plans["sums"].ids[: plans["sums"].counts[0]])
        push(client, {"sums": alone}, {"sums": np.ones((len(alone.ids), 2), np.float32)}, number=number)

    assert set(pending.clocks) == {PsId("ps-0"), PsId("ps-1")}
    old = client.begin_push(plans, ones, sender=7, number=1, rate=1.0, step=1, clocks=pending.clocks)
    assert not client.finish_push(old)
    pending = client.begin_pull(plans)
    client.finish_pull(plans, pending)
    fresh = client.begin_push(plans, ones, sender=7, number=1, rate=1.0, step=1, clocks=pending.clocks)
    assert client.finish_push(fresh)

    rows, counts = pull(client, plans)["sums"][:, 0], plans["sums"].counts
    assert rows.tolist() == [-3.0] * counts[0] + [-1.0] * counts[1]


def test_a_worker_that_waits_for_a_lost_ps_continues_with_its_replacement(start: Start) -> None:
    cluster = start(1)
    client = cluster.client()
    client.declare([SUMS])
    plans = {"sums": client.plan(np.arange(100))}
    pull(client, plans)
    cluster.kill(PsId("ps-0"))
    del cluster.holdings[PsId("ps-0")]
    pending = client.begin_push(plans, {"sums": np.ones((100, 2), np.float32)}, sender=1, number=1, rate=1.0, step=1)

    def replace() -> None:
        name = cluster.add()
        cluster.map = SlotMap(2, (name,) * len(cluster.map.owner))
        cluster.holdings[name].set_slot_map(cluster.map)
        client.update_fleet(cluster.fleet)

    replacing = threading.Timer(0.2, replace)
    replacing.start()
    assert client.finish_push(pending)
    replacing.join()

    assert (pull(client, plans)["sums"] == -1.0).all()


def test_a_ps_that_returns_under_its_name_is_used_again(start: Start) -> None:
    cluster = start(1)
    client = cluster.client()
    client.declare([SUMS])
    plans = {"sums": client.plan(np.arange(100))}
    cluster.servers[PsId("ps-0")].close()
    pending = client.begin_pull(plans)
    cluster.restart(PsId("ps-0"))
    client.update_fleet(cluster.fleet)

    assert (client.finish_pull(plans, pending)["sums"] == 0.0).all()


def test_a_fleet_update_without_a_new_owner_extends_the_wait(start: Start) -> None:
    cluster = start(2)
    client = cluster.client(timeout_s=1.0)
    client.declare([SUMS])
    cluster.kill(PsId("ps-1"))
    plans, started = {"sums": client.plan(np.arange(100))}, time.monotonic()
    news = threading.Timer(0.6, client.update_fleet, [cluster.fleet])
    news.start()
    with pytest.raises(PsUnreachable, match=r"ps-1: no answer within 1 s"):
        pull(client, plans)

    news.join()
    assert time.monotonic() - started >= 1.5, "news are a reason to wait on"


@pytest.mark.parametrize("count", [1, 2], ids=["one answer is the whole", "each is a part"])
@pytest.mark.parametrize("shape", [(1, 4), (100, 1), (0, 0), (99, 4)], ids=str)
def test_rows_of_an_unexpected_shape_are_refused(start: Start, count: int, shape: tuple[int, int]) -> None:
    cluster = start(count)

    def answer(message: PsMessage) -> PsMessage:
        parts = tuple(TablePart(part.table, NO_IDS, np.ones(shape, np.float32)) for part in message.parts)
        return PsMessage(MessageKind.REPLY, message.request, cluster.map.version, parts=parts)

    for name in list(cluster.servers):
        cluster.restart(name, answers={MessageKind.PULL: answer})
    client = cluster.client(shares=False)
    client.declare(TABLES)
    with pytest.raises(PsRefused, match=r"table users: expected rows"):
        pull(client, {"users": client.plan(np.arange(150))})


def test_a_worker_without_descriptors_connects_when_some_are_free(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start(2)
    connect, refused = authentication.connect_socket, list[Any]()

    def try_to_connect(*how: Any) -> zmq.Socket[bytes]:
        if len(refused) < 5:
            refused.append(how)
            raise zmq.ZMQError(errno.EMFILE)
        return connect(*how)

    monkeypatch.setattr("elasticdl.ps.wire.connections.connect_socket", try_to_connect)
    client = cluster.client()
    client.declare(TABLES)

    rows = pull(client, {"users": client.plan(np.arange(100))})

    assert rows["users"].shape == (100, 4)
    assert len(refused) == 5


@pytest.mark.parametrize("text", [b"", b"[]", b'{"version": 1}', b"\xff"], ids=repr)
def test_a_reply_that_cannot_be_decoded_is_reported_with_the_name_of_the_ps(start: Start, text: bytes) -> None:
    cluster = start(1)

    def answer(message: PsMessage) -> PsMessage:
        return PsMessage(MessageKind.REPLY, message.request, status=ReplyStatus.MOVED, text=text)

    cluster.restart(PsId("ps-0"), answers={MessageKind.PULL: answer})
    client = cluster.client()
    client.declare(TABLES)
    with pytest.raises(PsRefused, match="ps-0: its reply cannot be read"):
        pull(client, {"users": client.plan(np.arange(100))})


def test_a_client_does_not_wait_for_a_reply_of_a_lost_ps() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connections = PsConnections(
            {PsId("ps-0"): f"127.0.0.1:{silent.getsockname()[1]}"}, "token", timeout_s=60.0
        ).open()

        def lose() -> None:
            connection, _ = silent.accept()
            connections.mark_lost({PsId("ps-0")})
            connection.close()

        losing = threading.Thread(target=lose)
        losing.start()
        with pytest.raises(PsUnreachable, match="ps-0: is lost"):
            connections.request(PsId("ps-0"), PsMessage(MessageKind.STATUS, 0))
        losing.join()
        connections.close()
