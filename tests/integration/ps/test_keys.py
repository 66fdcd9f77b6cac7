"""With keys a ps refuses clients without them, and continues to serve the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from elasticdl.errors import AccessDenied
from elasticdl.ps.client.ps_client import PsClient
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.server.ps_server import PsServer
from elasticdl.ps.server.slot_transfer import create_backup
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.snapshots.coordinator import SnapshotCoordinator
from elasticdl.ps.snapshots.writer import SnapshotWriter
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire.connections import PsConnections, PsUnreachable
from elasticdl.ps.wire.keys import CurveKeys
from elasticdl.ps.wire.messages import MessageKind, PsMessage
from elasticdl.spec import PsId
from tests.waiting import until

PS = PsId("ps-0")
KEYS = CurveKeys.generate()
STATUS = PsMessage(MessageKind.STATUS, 0)


@pytest.fixture
def server() -> Iterator[PsServer]:
    ps_server = PsServer(PsState(PS, seed=1), "token", "127.0.0.1", threads=1, keys=KEYS).start()
    yield ps_server
    ps_server.close()


Ask = Callable[..., PsMessage]


@pytest.fixture
def ask(server: PsServer) -> Iterator[Ask]:
    opened: list[PsConnections] = []

    def once(keys: CurveKeys | None, token: str = "token", timeout_s: float = 30.0) -> PsMessage:
        opened.append(PsConnections({PS: server.address}, token, timeout_s, keys=keys).open())
        return opened[-1].request(PS, STATUS)

    yield once
    for connections in opened:
        connections.close()


def wait_denied(server: PsServer, count: int) -> bool:
    return until(f"{count} were denied", lambda: server.denied_count >= count, 30.0)


def test_a_worker_with_the_keys_of_the_job_is_answered(server: PsServer, ask: Ask) -> None:
    assert b"ps-0" in ask(KEYS).text
    assert server.denied_count == 0


@pytest.mark.parametrize(
    "keys",
    [
        None,
        CurveKeys.generate(),
        KEYS._replace(server_public=CurveKeys.generate().server_public),
        KEYS._replace(**{name: getattr(CurveKeys.generate(), name) for name in ("client_public",)}),
    ],
    ids=["no keys", "keys of another job", "another server's key", "half a client's pair"],
)
def test_a_client_without_keys_receives_nothing_and_is_counted(
    server: PsServer, ask: Ask, keys: CurveKeys | None
) -> None:
    with pytest.raises(PsUnreachable, match=r"ps-0: (no answer|it has accepted no message)"):  # whatever it waited for
        ask(keys, timeout_s=0.3)

    assert wait_denied(server, 1)
    assert b"ps-0" in ask(KEYS).text, "others are served"


def test_another_client_key_is_refused_although_the_server_key_is_right(server: PsServer, ask: Ask) -> None:
    own = CurveKeys.generate()
    guest = KEYS._replace(client_public=own.client_public, client_secret=own.client_secret)
    with pytest.raises(AccessDenied, match="ps-0 refused the token, or the keys, of this job"):
        ask(guest)

    assert wait_denied(server, 1)


def test_the_token_is_required_in_addition_to_the_keys(server: PsServer, ask: Ask) -> None:
    with pytest.raises(AccessDenied, match="ps-0 refused the token"):
        ask(KEYS, token="guess")


def test_moves_backups_and_snapshots_work_with_keys(tmp_path: Path) -> None:
    held = {name: PsState(name, seed=1) for name in (PS, PsId("ps-1"))}
    writers = {name: SnapshotWriter(state) for name, state in held.items()}
    servers = {
        name: PsServer(state, "token", "127.0.0.1", threads=1, keys=KEYS, answers=writers[name].handlers).start()
        for name, state in held.items()
    }
    fleet = FleetView(SlotMap.initial(list(held)), {name: server.address for name, server in servers.items()}, {})
    for state in held.values():
        state.set_slot_map(fleet.slot_map)
    client, coordinator = (
        PsClient(fleet, "token", 30.0, keys=KEYS).open(),
        SnapshotCoordinator(lambda: fleet, "token", 30.0, KEYS).open(),
    )
    connections = PsConnections(fleet.addresses, "token", 30.0, KEYS).open()
    client.declare([TableSpec(name="users", columns=2)])
    create_backup(held[PS], PsId("ps-1"), connections)
    plans = {"users": client.plan(np.arange(100))}
    sums = {"users": np.ones((100, 2), np.float32)}
    assert client.finish_push(client.begin_push(plans, sums, sender=1, number=1, rate=1.0, step=1))

    files = coordinator.finish(coordinator.begin(1, None), tmp_path, None, tmp_path)

    assert len(files) == 3
    assert held[PsId("ps-1")].status()["backup_rows"]["ps-0"] > 0
    assert sum(server.denied_count for server in servers.values()) == 0
    closed: tuple[Any, ...] = (client, coordinator, connections, *servers.values(), *writers.values())
    for part in closed:
        part.close()


def test_bytes_that_are_no_handshake_do_not_disturb_others(server: PsServer, ask: Ask) -> None:
    context = zmq.Context()
    stream = context.socket(zmq.STREAM)
    stream.connect(f"tcp://{server.address}")
    name, _ = stream.recv_multipart()
    stream.send_multipart([name, b"GET / HTTP/1.1\r\n\r\n" * 100])
    assert b"ps-0" in ask(KEYS).text
    context.destroy(linger=0)
