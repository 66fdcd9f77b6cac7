"""Several ps of one job in this process, on real sockets."""

from __future__ import annotations

from types import MappingProxyType

from elasticdl.ps.client.lookup_plan import LookupPlan
from elasticdl.ps.client.ps_client import PsClient
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.server.ps_server import PsServer, RequestHandlers
from elasticdl.ps.server.slot_transfer import TransferResult, create_backup, move_slots, remove_backup
from elasticdl.ps.slots import SlotMap, SlotMove, balance_slots
from elasticdl.ps.tables.initializer import Initializer
from elasticdl.ps.tables.optimizer import Optimizer
from elasticdl.ps.tables.push_policy import ACCEPT_ALL, PushPolicy
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire import messages
from elasticdl.ps.wire.connections import PsConnections
from elasticdl.spec import PsId
from tests.ps_requests import apply_moves

TABLES = [
    TableSpec(name="users", columns=4, initializer=Initializer(kind="constant", value=1.0)),
    TableSpec(name="items", columns=2, optimizer=Optimizer(rule="adagrad")),
]
TOKEN = "token"


class Cluster:
    def __init__(self, count: int, terms: PushPolicy = ACCEPT_ALL) -> None:
        self.terms = terms
        self.holdings: dict[PsId, PsState] = {}
        self.servers: dict[PsId, PsServer] = {}
        self.clients: list[PsClient] = []
        self.lost: set[PsId] = set()
        names = [self.add() for _ in range(count)]
        self.map = SlotMap.initial(names)
        for holdings in self.holdings.values():
            holdings.set_slot_map(self.map)

    def add(self) -> PsId:
        """Adds a ps without slots."""
        name = PsId(f"ps-{len(self.holdings) + len(self.lost)}")
        self.holdings[name] = PsState(name, seed=3, policy=self.terms)
        self.servers[name] = PsServer(self.holdings[name], TOKEN, "127.0.0.1", threads=2).start()
        return name

    @property
    def addresses(self) -> dict[PsId, str]:
        return {name: server.address for name, server in self.servers.items()}

    @property
    def fleet(self) -> FleetView:
        forwarders = {name: state.backup for name, state in self.holdings.items()}
        backups = {name: forwarder.target for name, forwarder in forwarders.items() if forwarder}
        return FleetView(self.map, self.addresses, backups, frozenset(self.lost))

    def client(
        self, token: str = TOKEN, timeout_s: float = 30.0, transport: str = "float32", *, shares: bool = True
    ) -> PsClient:
        client = PsClient(self.fleet, token, timeout_s, transport=transport, shares=shares).open()
        self.clients.append(client)
        return client

    def rebalance(self, members: list[PsId]) -> list[TransferResult]:
        """Move slots until `members` hold all of them, one pair of ps after the other, each with a map of its own."""
        results = []
        connections = PsConnections(self.addresses, TOKEN, 10.0).open()
        moves = balance_slots(self.map, members)
        for source, target in sorted({(move.source, move.target) for move in moves}):
            batch = [move for move in moves if (move.source, move.target) == (source, target)]
            self.map = apply_moves(self.map, batch)
            results.append(
                move_slots(self.holdings[source], [move.slot for move in batch], target, connections, self.map)
            )
        connections.close()
        return results

    def back_up(self) -> None:
        """Makes each ps the backup of the one before it."""
        names = list(self.holdings)
        with PsConnections(self.addresses, TOKEN, 30.0) as connections:
            for name, target in zip(names, [*names[1:], names[0]], strict=True):
                create_backup(self.holdings[name], target, connections)

    def restart(
        self,
        name: PsId,
        *,
        threads: int = 2,
        backup_timeout_s: float = 10.0,
        answers: RequestHandlers = MappingProxyType({}),
    ) -> None:
        """Restarts the server of a ps, with the same state, at another address."""
        self.servers[name].close()
        self.servers[name] = PsServer(
            self.holdings[name], TOKEN, "127.0.0.1", threads=threads, backup_timeout_s=backup_timeout_s, answers=answers
        ).start()

    def kill(self, name: PsId) -> None:
        """Closes the server of a ps without a notice to anybody."""
        self.servers.pop(name).close()
        self.lost.add(name)

    def promote(self, name: PsId) -> int:
        """Makes the backup of a lost ps the owner of its slots."""
        gone = self.holdings.pop(name)
        assert gone.backup is not None
        for holdings in self.holdings.values():
            if holdings.backup and holdings.backup.target == name:
                remove_backup(holdings)
        heir = gone.backup.target
        self.map = apply_moves(self.map, [SlotMove(slot, name, heir) for slot in self.map.slots_of(name)])
        return self.holdings[heir].promote_backup(name, self.map)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for server in self.servers.values():
            server.close()


def pull(client: PsClient, plans: dict[str, LookupPlan]) -> dict[str, messages.Floats]:
    return client.finish_pull(plans, client.begin_pull(plans))


def push(
    client: PsClient, plans: dict[str, LookupPlan], sums: dict[str, messages.Floats], number: int = 0, rate: float = 1.0
) -> bool:
    return client.finish_push(client.begin_push(plans, sums, sender=1, number=number, rate=rate, step=max(1, number)))
