"""Reads all rows of a table over the wire, from all ps."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.ps.client.table_reader import TableReader
from elasticdl.ps.wire.connections import PsConnections, PsRefused
from elasticdl.ps.wire.messages import NO_ROWS, MessageKind, PsMessage, TablePart
from elasticdl.spec import PsId
from tests.integration.ps.cluster import TABLES, TOKEN, pull, push
from tests.integration.ps.conftest import Start


def test_every_row_comes_once_with_its_value_after_slots_moved(start: Start) -> None:
    cluster = start(2)
    client = cluster.client()
    client.declare(TABLES)
    plan = client.plan(np.arange(-2000, 2000) * 7)
    pull(client, {"users": plan})
    push(client, {"users": plan}, {"users": np.arange(16000, dtype=np.float32).reshape(4000, 4)}, number=1)
    cluster.rebalance([*cluster.holdings, cluster.add()])
    expected = dict(zip(plan.ids.tolist(), (1.0 - np.arange(16000).reshape(4000, 4)).tolist(), strict=True))

    with TableReader(cluster.fleet, TOKEN, 30.0, None) as gathering:
        ids, rows = gathering.read_table("users")
        nothing = gathering.read_table("items")

    assert ids.tolist() == sorted(expected)
    assert dict(zip(ids.tolist(), rows.tolist(), strict=True)) == expected
    assert nothing[1].shape == (0, 2)


@pytest.mark.parametrize("ids", [[], [64], [-1], [1, 2]])
def test_a_request_that_is_not_a_stripe_is_refused(start: Start, ids: list[int]) -> None:
    cluster = start(1)
    cluster.client().declare(TABLES)
    message = PsMessage(MessageKind.READ_STRIPE, 0, parts=(TablePart(0, np.array(ids, np.int64), NO_ROWS),))
    with (
        PsConnections(cluster.addresses, TOKEN, 10.0) as connections,
        pytest.raises(PsRefused, match="READ_STRIPE"),
    ):
        connections.request(PsId("ps-0"), message)
