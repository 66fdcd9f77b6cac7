"""A worker and a ps on one machine share memory; rows are the same as over a socket, also after failures."""

from __future__ import annotations

import os

import numpy as np
import pytest

from elasticdl.ps.server.ps_server import PsServer
from elasticdl.ps.tables.initializer import Initializer
from elasticdl.ps.tables.push_policy import PushPolicy
from elasticdl.ps.tables.table import TableSpec
from elasticdl.spec import PsId
from tests.integration.ps.cluster import TOKEN, pull, push
from tests.integration.ps.conftest import Start

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has memory without a name")

WIDE = TableSpec(name="wide", columns=8, initializer=Initializer(kind="uniform"))
ZEROS = TableSpec(name="zeros", columns=8, initializer=Initializer(kind="zeros"))
COUNT = 3000
NAME = PsId("ps-0")


@pytest.mark.parametrize("count", [1, 3])
def test_rows_are_the_same_with_and_without_shared_memory(start: Start, count: int) -> None:
    cluster = start(count)
    near, far = cluster.client(), cluster.client(shares=False)
    for client in (near, far):
        client.declare([WIDE])
    plan = near.plan(np.arange(COUNT) * 3)
    first = pull(near, {"wide": plan})["wide"]  # meanwhile the ps have looked
    second = pull(near, {"wide": plan})["wide"]
    assert [server.shared_memories.sweep() for server in cluster.servers.values()] == [1] * count

    gradients = np.random.default_rng(1).standard_normal((COUNT, 8)).astype(np.float32)
    push(near, {"wide": plan}, {"wide": gradients}, number=1)
    after_push, over_the_socket = pull(near, {"wide": plan})["wide"], pull(far, {"wide": plan})["wide"]

    assert (first == second).all(), "rows that are still looked at are not written over"
    assert (after_push == over_the_socket).all()
    assert np.allclose(after_push, first - gradients, atol=1e-6)


def test_a_ps_that_no_longer_has_the_shared_memory_is_sent_the_arrays(start: Start) -> None:
    cluster = start(1)
    client = cluster.client()
    client.declare([ZEROS])
    plan = client.plan(np.arange(COUNT))
    for _ in range(2):
        pull(client, {"zeros": plan})
    port = int(cluster.servers[NAME].address.rsplit(":", 1)[1])
    cluster.servers[NAME].close()
    cluster.servers[NAME] = PsServer(cluster.holdings[NAME], TOKEN, "127.0.0.1", threads=2, port=port).start()

    push(client, {"zeros": plan}, {"zeros": np.ones((COUNT, 8), np.float32)}, number=1)

    assert (pull(client, {"zeros": plan})["zeros"] == -1.0).all()
    assert cluster.servers[NAME].shared_memories.sweep() == 0


def test_pending_pushes_are_not_overwritten(start: Start) -> None:
    cluster = start(1, PushPolicy(grads_to_wait=3))
    client = cluster.client()
    client.declare([ZEROS])
    plan = client.plan(np.arange(COUNT))
    for _ in range(2):
        pull(client, {"zeros": plan})
    for number, value in enumerate((1.0, 2.0, 6.0), 1):
        push(client, {"zeros": plan}, {"zeros": np.full((COUNT, 8), value, np.float32)}, number=number)

    assert np.allclose(pull(client, {"zeros": plan})["zeros"], -3.0), "their mean, each as it was sent"


def test_a_backup_receives_the_arrays_that_were_in_shared_memory(start: Start) -> None:
    cluster = start(2)
    client = cluster.client()
    client.declare([ZEROS])
    cluster.back_up()
    plan = client.plan(np.arange(COUNT))
    for _ in range(2):
        pull(client, {"zeros": plan})
    for number in (1, 2):
        push(client, {"zeros": plan}, {"zeros": np.ones((COUNT, 8), np.float32)}, number=number)

    cluster.kill(NAME)
    cluster.promote(NAME)
    client.update_fleet(cluster.fleet)

    assert (pull(client, {"zeros": plan})["zeros"] == -2.0).all()


def test_without_shared_memory_the_arrays_are_sent(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    cluster = start(1)
    client = cluster.client()
    client.declare([ZEROS])
    plan = client.plan(np.arange(COUNT))
    for number in (1, 2):
        push(client, {"zeros": plan}, {"zeros": np.ones((COUNT, 8), np.float32)}, number=number)
    assert (pull(client, {"zeros": plan})["zeros"] == -2.0).all()
