"""When clients of ps acquire their connections."""

from __future__ import annotations

from elasticdl.ps.client.ps_client import PsClient
from elasticdl.ps.client.table_reader import TableReader
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.snapshots.coordinator import SnapshotCoordinator
from elasticdl.ps.wire.connections import PsConnections
from elasticdl.spec import PsId
from tests.resources import acquires_nothing

PS = PsId("ps-0")
FLEET = FleetView(SlotMap.initial([PS]), {PS: "127.0.0.1:1"}, {})


def test_clients_open_no_connection_before_open() -> None:
    with acquires_nothing():
        PsConnections(FLEET.addresses, "token", 1.0)
        PsClient(FLEET, "token", 1.0)
        SnapshotCoordinator(lambda: FLEET, "token", 1.0)
        TableReader(FLEET, "token", 1.0, None)


def test_a_client_that_is_closed_leaves_nothing_open() -> None:
    with PsClient(FLEET, "token", 1.0):
        pass  # the context of ZeroMQ keeps what it needs once per process

    with acquires_nothing(), PsClient(FLEET, "token", 1.0), SnapshotCoordinator(lambda: FLEET, "token", 1.0):
        pass
