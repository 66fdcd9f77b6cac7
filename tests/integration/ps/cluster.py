"""Some ps of one job in this process, on real sockets."""

from __future__ import annotations

import contextlib
from types import MappingProxyType

from elasticdl.ps import wire
from elasticdl.ps.client import Client
from elasticdl.ps.fleet import Fleet
from elasticdl.ps.holdings import Holdings
from elasticdl.ps.initializer import Initializer
from elasticdl.ps.line import Lines
from elasticdl.ps.mirroring import mirror, unmirror
from elasticdl.ps.moving import Moved, move
from elasticdl.ps.optimizer import Optimizer
from elasticdl.ps.plan import Plan
from elasticdl.ps.server import Answers, Server
from elasticdl.ps.slots import Move, SlotMap, balance
from elasticdl.ps.table import TableSpec
from elasticdl.ps.terms import ANY, Terms
from elasticdl.spec import PsId

TABLES = [
    TableSpec(name="users", columns=4, initializer=Initializer(kind="constant", value=1.0)),
    TableSpec(name="items", columns=2, optimizer=Optimizer(rule="adagrad")),
]
TOKEN = "token"


class Cluster:
    def __init__(self, count: int, terms: Terms = ANY) -> None:
        self.terms = terms
        self.holdings: dict[PsId, Holdings] = {}
        self.servers: dict[PsId, Server] = {}
        self.clients: list[Client] = []
        self.lost: set[PsId] = set()
        names = [self.add() for _ in range(count)]
        self.map = SlotMap.first(names)
        for holdings in self.holdings.values():
            holdings.set_map(self.map)

    def add(self) -> PsId:
        """One more ps, which holds nothing yet."""
        name = PsId(f"ps-{len(self.holdings) + len(self.lost)}")
        self.holdings[name] = Holdings(name, seed=3, terms=self.terms)
        self.servers[name] = Server(self.holdings[name], TOKEN, "127.0.0.1", threads=2)
        return name

    @property
    def addresses(self) -> dict[PsId, str]:
        return {name: server.address for name, server in self.servers.items()}

    @property
    def fleet(self) -> Fleet:
        mirrors = {name: one.mirror for name, one in self.holdings.items()}
        replicas = {name: mirror.target for name, mirror in mirrors.items() if mirror}
        return Fleet(self.map, self.addresses, replicas, frozenset(self.lost))

    def client(
        self, token: str = TOKEN, timeout_s: float = 30.0, transport: str = "float32", *, shares: bool = True
    ) -> Client:
        client = Client(self.fleet, token, timeout_s, transport=transport, shares=shares)
        self.clients.append(client)
        return client

    def rebalance(self, members: list[PsId]) -> list[Moved]:
        """Move slots until `members` hold all of them, one pair of ps after the other, each with a map of its own."""
        done = []
        lines = Lines(self.addresses, TOKEN, 10.0)
        moves = balance(self.map, members)
        for source, target in sorted({(one.source, one.target) for one in moves}):
            batch = [one for one in moves if (one.source, one.target) == (source, target)]
            self.map = self.map.moved(batch)
            done.append(move(self.holdings[source], [one.slot for one in batch], target, lines, self.map))
        lines.close()
        return done

    def mirror(self) -> None:
        """Each holds a copy of the one before it."""
        names = list(self.holdings)
        with contextlib.closing(Lines(self.addresses, TOKEN, 30.0)) as lines:
            for name, target in zip(names, [*names[1:], names[0]], strict=True):
                mirror(self.holdings[name], target, lines)

    def restart(
        self,
        name: PsId,
        *,
        threads: int = 2,
        copy_timeout_s: float = 10.0,
        answers: Answers = MappingProxyType({}),
    ) -> None:
        """The same ps behind another address."""
        self.servers[name].close()
        self.servers[name] = Server(
            self.holdings[name], TOKEN, "127.0.0.1", threads=threads, copy_timeout_s=copy_timeout_s, answers=answers
        )

    def kill(self, name: PsId) -> None:
        """Without a word."""
        self.servers.pop(name).close()
        self.lost.add(name)

    def promote(self, name: PsId) -> int:
        """Whoever holds the copies of one that is lost owns them from now on."""
        gone = self.holdings.pop(name)
        assert gone.mirror is not None
        for holdings in self.holdings.values():
            if holdings.mirror and holdings.mirror.target == name:
                unmirror(holdings)
        heir = gone.mirror.target
        self.map = self.map.moved(Move(slot, name, heir) for slot in self.map.slots_of(name))
        return self.holdings[heir].promote(name, self.map)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for server in self.servers.values():
            server.close()


def pull(client: Client, plans: dict[str, Plan]) -> dict[str, wire.Floats]:
    return client.pulled(plans, client.begin_pull(plans))


def push(
    client: Client, plans: dict[str, Plan], sums: dict[str, wire.Floats], number: int = 0, rate: float = 1.0
) -> bool:
    return client.pushed(client.begin_push(plans, sums, sender=1, number=number, rate=rate, step=max(1, number)))
