"""With keys, strangers get nothing from a ps, and it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

from elasticdl.errors import AccessDenied
from elasticdl.ps.client import Client
from elasticdl.ps.cutting import Cutter
from elasticdl.ps.fleet import Fleet
from elasticdl.ps.holdings import Holdings
from elasticdl.ps.keeper import Keeper
from elasticdl.ps.keys import Keys
from elasticdl.ps.line import Lines, PsUnreachable
from elasticdl.ps.mirroring import mirror
from elasticdl.ps.server import Server
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.table import TableSpec
from elasticdl.ps.wire import Kind, Message
from elasticdl.spec import PsId
from tests.waiting import until

PS = PsId("ps-0")
KEYS = Keys.make()
STATUS = Message(Kind.STATUS, 0)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(Holdings(PS, seed=1), "token", "127.0.0.1", threads=1, keys=KEYS)
    yield made
    made.close()


Ask = Callable[..., Message]


@pytest.fixture
def ask(server: Server) -> Iterator[Ask]:
    opened: list[Lines] = []

    def once(keys: Keys | None, token: str = "token", timeout_s: float = 30.0) -> Message:
        opened.append(Lines({PS: server.address}, token, timeout_s, keys=keys))
        return opened[-1].ask(PS, STATUS)

    yield once
    for lines in opened:
        lines.close()


def counted(server: Server, least: int) -> bool:
    return until(f"{least} were denied", lambda: server.denied >= least, 30.0)


def test_a_worker_with_the_keys_of_the_job_is_answered(server: Server, ask: Ask) -> None:
    assert b"ps-0" in ask(KEYS).text
    assert server.denied == 0


@pytest.mark.parametrize(
    "keys",
    [
        None,
        Keys.make(),
        KEYS._replace(server_public=Keys.make().server_public),
        KEYS._replace(**{name: getattr(Keys.make(), name) for name in ("client_public",)}),
    ],
    ids=["no keys", "keys of another job", "another server's key", "half a client's pair"],
)
def test_a_stranger_gets_nothing_and_is_counted(server: Server, ask: Ask, keys: Keys | None) -> None:
    with pytest.raises(PsUnreachable, match="ps-0: no answer"):
        ask(keys, timeout_s=0.3)

    assert counted(server, 1)
    assert b"ps-0" in ask(KEYS).text, "others are served"


def test_a_client_key_of_ones_own_does_not_help_who_knows_the_servers(server: Server, ask: Ask) -> None:
    own = Keys.make()
    guest = KEYS._replace(client_public=own.client_public, client_secret=own.client_secret)
    with pytest.raises(AccessDenied, match="ps-0 refused the token, or the keys, of this job"):
        ask(guest)

    assert counted(server, 1)


def test_the_token_is_asked_for_all_the_same(server: Server, ask: Ask) -> None:
    with pytest.raises(AccessDenied, match="ps-0 refused the token"):
        ask(KEYS, token="guess")


def test_rows_copies_and_cuts_travel_with_keys(tmp_path: Path) -> None:
    held = {name: Holdings(name, seed=1) for name in (PS, PsId("ps-1"))}
    keepers = {name: Keeper(one) for name, one in held.items()}
    servers = {
        name: Server(one, "token", "127.0.0.1", threads=1, keys=KEYS, answers=keepers[name].answers)
        for name, one in held.items()
    }
    fleet = Fleet(SlotMap.first(list(held)), {name: one.address for name, one in servers.items()}, {})
    for one in held.values():
        one.set_map(fleet.map)
    client, cutter = Client(fleet, "token", 30.0, keys=KEYS), Cutter(lambda: fleet, "token", 30.0, KEYS)
    lines = Lines(fleet.addresses, "token", 30.0, KEYS)
    client.declare([TableSpec(name="users", columns=2)])
    mirror(held[PS], PsId("ps-1"), lines)
    plans = {"users": client.plan(np.arange(100))}
    sums = {"users": np.ones((100, 2), np.float32)}
    assert client.pushed(client.begin_push(plans, sums, sender=1, number=1, rate=1.0, step=1))

    files = cutter.finish(cutter.begin(1, None), tmp_path, None, tmp_path)

    assert len(files) == 3
    assert held[PsId("ps-1")].status()["copies"]["ps-0"] > 0
    assert sum(server.denied for server in servers.values()) == 0
    for closed in (client, cutter, lines, *servers.values(), *keepers.values()):
        closed.close()


def test_bytes_that_are_no_handshake_stop_nobody(server: Server, ask: Ask) -> None:
    context = zmq.Context()
    stream = context.socket(zmq.STREAM)
    stream.connect(f"tcp://{server.address}")
    name, _ = stream.recv_multipart()
    stream.send_multipart([name, b"GET / HTTP/1.1\r\n\r\n" * 100])
    assert b"ps-0" in ask(KEYS).text
    context.destroy(linger=0)
