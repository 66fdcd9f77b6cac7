"""A worker's side of the ps: one request to each of them for all tables together, answers whenever they come.

Nothing here has threads of its own: ZeroMQ sends and receives behind our back, so a pull that was begun before a
step and a push that nobody waits for cost the training thread their sending only.

A request stays in our memory until it is answered. If the ps it went to says that the slots have moved, or is lost,
its ids are planned anew and go to whoever holds them now, a push with the same sender and number: each slot takes it
once. While nobody holds them they wait here for news of the fleet.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from elasticdl.ps.fleet import Fleet
from elasticdl.ps.keys import Keys
from elasticdl.ps.line import Lines, PsUnreachable, check
from elasticdl.ps.pending import Pending as Pending
from elasticdl.ps.pending import Request, Share
from elasticdl.ps.plan import Plan, Route
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.table import TableSpec
from elasticdl.ps.wire import NO_ROWS, Floats, Ids, Kind, Message, Part, Status, Transport
from elasticdl.spec import PsId

_RETRY_S = 0.2  # requests that nobody could take are tried again so often, also without news


class Client:
    """For one thread, except `use`."""

    def __init__(
        self, fleet: Fleet, token: str, timeout_s: float, *, transport: str = "float32", keys: Keys | None = None
    ) -> None:
        self._lines = Lines({}, token, timeout_s, keys)
        self._transport = Transport[transport.upper()]
        self._lock = threading.Lock()  # of the news
        self._news: Fleet | None = None
        self._is_closed = False
        self._lost: frozenset[PsId] = frozenset()
        self._open: dict[int, tuple[Pending, Request]] = {}  # by the number of the request
        self._parked: list[tuple[Pending, Request]] = []  # for those that are lost, or not known yet
        self._undeclared: dict[PsId, list[tuple[Pending, Request]]] = {}  # until the tables are declared there
        self._inbox: deque[Message] = deque()
        self._tables: dict[str, TableSpec] = {}
        self._numbers: dict[PsId, dict[str, int]] = {}
        self._tried_at = 0.0
        self._heard = 0  # the version of the newest fleet
        self.moved = 0  # answers that sent us elsewhere
        self._route = Route.of(fleet.map)
        self._hear(fleet)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._lines.close()

    def use(self, fleet: Fleet) -> None:
        """A newer fleet, from any thread. Waiting calls wake up, and send elsewhere what those had that are lost."""
        with self._lock:
            if not self._is_closed:
                self._news = fleet
                self._lines.wake()

    def declare(self, tables: Sequence[TableSpec]) -> None:
        """Make these tables known to every ps."""
        self._tables |= {table.name: table for table in tables}
        self._listen()
        while lacking := [name for name in self._route.members if not self._knows(name)]:
            for name in lacking:
                self._declare(name)
            self._until(lambda: not self._undeclared, lambda: list(self._undeclared))

    # ---- what a worker does in a step

    def plan(self, ids: Ids) -> Plan:
        self._listen()
        return self._route.plan(ids)

    def begin_pull(self, plans: Mapping[str, Plan], *, create: bool = True) -> Pending:
        """Ask for the rows of these plans, by table."""
        pending = Pending([self._whole(table, plan) for table, plan in plans.items()])
        message = Message(Kind.PULL if create else Kind.LOOK, 0, transport=self._transport)
        shares = (
            (name, plan.route.version, Share(table, plan.ids[place], NO_ROWS, number, place))
            for number, (table, plan) in enumerate(plans.items())
            for name, place in plan.places()
        )
        self._begin(pending, message, shares, {})
        return pending

    def pulled(self, plans: Mapping[str, Plan], pending: Pending) -> dict[str, Floats]:
        """The rows, in the order of each plan's ids."""
        self._wait(pending)
        return {table: rows for table, rows in zip(plans, pending.rows, strict=True) if rows is not None}

    def begin_push(
        self,
        plans: Mapping[str, Plan],
        sums: Mapping[str, Floats],
        *,
        sender: int,
        number: int,
        rate: float,
        step: int,
        clocks: Mapping[PsId, int] | None = None,
    ) -> Pending:
        """Send the gradients of a batch, summed by id; `clocks` are those of the pull they were computed with.

        Whatever has this sender and number counts once, however often it is sent, and whoever computes it again.
        0 as a number: each time. The sums are sent as they lie there: they must not be written to until `pushed`.
        """
        pending = Pending()
        message = Message(Kind.PUSH, 0, sender=sender, batch=number, step=step, rate=rate, transport=self._transport)
        self._begin(pending, message, _with_rows(plans, sums), clocks or {})
        return pending

    def pushed(self, pending: Pending) -> bool:
        """Until every ps has it. False: one found it stale; compute it again under the same number."""
        self._wait(pending)
        return not pending.is_stale

    def put(self, table: str, ids: Ids, rows: Floats) -> None:
        """Make rows with these values where there are none; of an id that is twice there the first counts."""
        plan = self.plan(ids)
        first = np.empty(len(plan.ids), np.int64)
        first[plan.inverse[::-1]] = np.arange(len(ids))[::-1]
        pending = Pending()
        self._begin(pending, Message(Kind.PUT, 0), _with_rows({table: plan}, {table: rows[first]}), {})
        self._wait(pending)

    # ---- sending

    def _whole(self, table: str, plan: Plan) -> Floats | None:
        """The array that several answers fill; a single answer is the array itself."""
        if sum(count > 0 for count in plan.counts) == 1:
            return None
        return np.empty((len(plan.ids), self._tables[table].columns), np.float32)

    def _begin(
        self,
        pending: Pending,
        message: Message,
        shares: Iterable[tuple[PsId, int, Share]],
        clocks: Mapping[PsId, int],
    ) -> None:
        """Send to each ps its shares, in one message; they name the version of the map they were made with."""
        requests: dict[PsId, list[Share]] = {}
        version = 0
        for name, made_with, share in shares:
            requests.setdefault(name, []).append(share)
            version = min(version, made_with) if version else made_with
        for name, mine in requests.items():
            made = message._replace(version=version, clock=clocks.get(name, 0))
            pending.open += 1
            self._send(pending, Request(name, made, tuple(mine)))

    def _send(self, pending: Pending, request: Request) -> None:
        name = request.ps
        if name in self._lost or name not in self._lines.addresses:
            self._parked.append((pending, request))
            return
        numbers = self._numbers.get(name, {})
        if not all(share.table in numbers for share in request.shares):
            self._declare(name)
            self._undeclared[name].append((pending, request))
            return
        parts = tuple(Part(numbers[share.table], share.ids, share.rows) for share in request.shares)
        self._open[self._lines.send(name, request.message._replace(parts=parts))] = (pending, request)

    def _knows(self, name: PsId) -> bool:
        """Whether our tables are declared there; a ps that we cannot reach is told when we can."""
        return name not in self._lines.addresses or self._tables.keys() <= self._numbers.get(name, {}).keys()

    def _declare(self, name: PsId) -> None:
        if name in self._undeclared:
            return
        self._undeclared[name] = []
        text = json.dumps([table.model_dump() for table in self._tables.values()]).encode()
        pending, request = Pending(), Request(name, Message(Kind.DECLARE, 0, text=text), ())
        pending.open = 1
        self._open[self._lines.send(name, request.message)] = (pending, request)

    # ---- waiting

    def _wait(self, pending: Pending) -> None:
        if pending.open:
            self._until(lambda: not pending.open, lambda: self._silent(pending))

    def _until(self, is_done: Callable[[], bool], silent: Callable[[], list[PsId]]) -> None:
        heard_at = time.monotonic()
        while not is_done():
            now = time.monotonic()
            left_s = heard_at + self._lines.timeout_s - now
            if left_s <= 0:
                names = ", ".join(sorted(set(silent())))
                raise PsUnreachable(f"{names}: no answer within {self._lines.timeout_s:g} s")
            if self._parked and now >= self._tried_at + _RETRY_S:
                self._tried_at = now
                self._try_again()
            if not self._inbox:
                self._inbox += self._lines.receive(min(left_s, _RETRY_S) if self._parked else left_s)
            is_news = False
            # Before the news: an answer counts, also of one that is lost by now. Where one is a refusal it is raised,
            # and those behind it are for the next who waits.
            while self._inbox:
                is_news |= self._take(self._inbox.popleft())
            if self._listen() or is_news:
                heard_at = time.monotonic()

    def _silent(self, pending: Pending) -> list[PsId]:
        waiting = [*self._open.values(), *self._parked, *(one for queue in self._undeclared.values() for one in queue)]
        return [request.ps for whose, request in waiting if whose is pending]

    def _take(self, reply: Message) -> bool:
        """Whether it brought us forward."""
        pending, request = self._open.pop(reply.request, (None, None))
        if pending is None or request is None:
            return False  # of a request that was given up, or sent elsewhere
        if reply.status is Status.MOVED:
            self.moved += 1
            slot_map = SlotMap.load(json.loads(reply.text))
            if slot_map.version > self._route.version:
                self._route = Route.of(slot_map)
            if self._route.version > request.message.version:
                self._again(pending, request)
                return True
            self._parked.append((pending, request))  # it does not hold them, and nobody else is known to
            return False
        pending.open -= 1
        check(request.ps, reply)
        match request.message.kind:
            case Kind.PULL | Kind.LOOK:
                pending.clocks[request.ps] = min(reply.clock, pending.clocks.get(request.ps, reply.clock))
                for part, share in zip(reply.parts, request.shares, strict=True):
                    whole = pending.rows[share.plan]
                    if whole is None:
                        pending.rows[share.plan] = part.rows
                    else:
                        whole[share.place] = part.rows
            case Kind.PUSH:
                pending.is_stale |= reply.status is Status.STALE
            case Kind.DECLARE:
                self._numbers[request.ps] = json.loads(reply.text)
                for one in self._undeclared.pop(request.ps, []):
                    self._send(*one)
        return True

    # ---- the fleet changes

    def _listen(self) -> bool:
        """Whether there was news."""
        if self._news is None:
            return False
        with self._lock:
            fleet, self._news = self._news, None
        if fleet is not None and fleet.version >= self._heard:
            self._hear(fleet)
        return True

    def _hear(self, fleet: Fleet) -> None:
        self._heard, self._lost = fleet.version, fleet.lost
        if fleet.version > self._route.version:
            self._route = Route.of(fleet.map)
        known = {name: address for name, address in fleet.addresses.items() if name not in fleet.lost}
        gone = {name for name, address in self._lines.addresses.items() if known.get(name) != address}
        while gone and (replies := self._lines.receive(0.0)):  # what came before it was gone is not asked for again
            for reply in replies:
                self._take(reply)
        for name in gone:
            self._lines.disconnect(name)
            self._numbers.pop(name, None)
            self._parked += self._undeclared.pop(name, [])
        for name, address in known.items():
            self._lines.connect(name, address)
        for number, (pending, request) in list(self._open.items()):
            if request.ps in gone:
                del self._open[number]
                if request.message.kind is not Kind.DECLARE:
                    self._parked.append((pending, request))
        self._try_again()

    def _try_again(self) -> None:
        parked, self._parked = self._parked, []
        for pending, request in parked:
            self._again(pending, request)

    def _again(self, pending: Pending, request: Request) -> None:
        """Nothing is known of this request: ask those that hold the slots now."""
        pending.open -= 1
        shares = []
        for table, ids, rows, number, outer in request.shares:
            plan = self._route.plan(ids)
            back = np.argsort(plan.inverse)  # from places in the new plan to places in this share
            if pending.rows and pending.rows[number] is None:  # one answer may become several
                pending.rows[number] = np.empty((len(ids), self._tables[table].columns), np.float32)
            for name, place in plan.places():
                inner = back[place]
                where = inner + outer.start if isinstance(outer, slice) else outer[inner]
                some = rows[inner] if len(rows) else rows
                shares.append((name, plan.route.version, Share(table, plan.ids[place], some, number, where)))
        # The clock of one ps says nothing at another.
        self._begin(pending, request.message, shares, {request.ps: request.message.clock})


def _with_rows(plans: Mapping[str, Plan], rows: Mapping[str, Floats]) -> Iterator[tuple[PsId, int, Share]]:
    for number, (table, plan) in enumerate(plans.items()):
        for name, place in plan.places():
            yield name, plan.route.version, Share(table, plan.ids[place], rows[table][place], number, place)
