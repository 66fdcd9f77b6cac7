"""Requests under way between a worker and its ps, until each is answered by whoever holds the slots then.

A request stays in our memory until it is answered. If the ps it went to says that the slots have moved, or is lost,
its ids are planned anew and go to whoever holds them now, a push with the same sender and number: each slot takes it
once. While nobody holds them they wait here for news of the fleet.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from elasticdl.ps.fleet import Fleet
from elasticdl.ps.keys import Keys
from elasticdl.ps.line import Lines, PsRefused, PsUnreachable, check
from elasticdl.ps.pending import Pending, Request, Share
from elasticdl.ps.plan import Route
from elasticdl.ps.sharing import Rooms, Sharing
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.table import TableSpec
from elasticdl.ps.wire import Kind, Message, Part, Status
from elasticdl.spec import PsId

T = TypeVar("T")

_log = logging.getLogger(__name__)

_RETRY_S = 0.2  # requests that nobody could take are tried again so often, also without news


class Courier:
    """For one thread, except `use`."""

    def __init__(self, fleet: Fleet, token: str, timeout_s: float, *, keys: Keys | None, shares: bool) -> None:
        self._lines = Lines({}, token, timeout_s, keys)
        self._sharing = Sharing(is_on=shares)
        self._lock = threading.Lock()  # of the news
        self._news: Fleet | None = None
        self._is_closed = False
        self._lost: frozenset[PsId] = frozenset()
        self._open: dict[int, tuple[Pending, Request, Rooms]] = {}  # by the number of the request
        self._parked: list[tuple[Pending, Request]] = []  # for those that are lost, or not known yet
        self._undeclared: dict[PsId, list[tuple[Pending, Request]]] = {}  # until the tables are declared there
        self._inbox: deque[Message] = deque()
        self._tables: dict[str, TableSpec] = {}
        self._numbers: dict[PsId, dict[str, int]] = {}
        self._tried_at = 0.0
        self._heard = 0  # the version of the newest fleet
        self._known: dict[PsId, str] = {}  # where its ps are that are not lost
        self.moved = 0  # answers that sent us elsewhere
        self._route = Route.of(fleet.map)
        self._hear(fleet)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._lines.close()
            self._sharing.close()

    def use(self, fleet: Fleet) -> None:
        """A newer fleet, from any thread."""
        with self._lock:
            if not self._is_closed:
                self._news = fleet
                self._lines.wake()

    def route(self) -> Route:
        """The way of ids, as far as is known now."""
        self._listen()
        return self._route

    def columns(self, table: str) -> int:
        return self._tables[table].columns

    def declare(self, tables: Sequence[TableSpec]) -> None:
        """Make these tables known to every ps."""
        self._tables |= {table.name: table for table in tables}
        self._listen()
        while lacking := [name for name in self._route.members if not self._knows(name)]:
            for name in lacking:
                self._declare(name)
            self._until(lambda: not self._undeclared, lambda: list(self._undeclared))

    # ---- sending

    def begin(
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
        rooms = self._sharing.rooms(request, self.columns)
        parts = tuple(
            Part(numbers[share.table], share.ids, share.rows) if room is None
            else Part(numbers[share.table], room.ids, room.rows, room.at)
            for share, room in zip(request.shares, rooms, strict=True)
        )  # fmt: skip
        memory = self._sharing.memory(name) if any(rooms) else 0
        number = self._lines.send(name, request.message._replace(parts=parts, memory=memory))
        self._open[number] = (pending, request, rooms)

    def _knows(self, name: PsId) -> bool:
        """Whether our tables are declared there; a ps that we cannot reach is told when we can."""
        return name not in self._lines.addresses or self._tables.keys() <= self._numbers.get(name, {}).keys()

    def _declare(self, name: PsId) -> None:
        if name in self._undeclared:
            return
        self._undeclared[name] = []
        text = json.dumps([table.model_dump() for table in self._tables.values()]).encode()
        self._ask(name, Message(Kind.DECLARE, 0, text=text))

    def _ask(self, name: PsId, message: Message) -> None:
        pending = Pending()
        pending.open = 1
        self._open[self._lines.send(name, message)] = (pending, Request(name, message, ()), ())

    # ---- waiting

    def wait(self, pending: Pending) -> None:
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
        sent = [(whose, request) for whose, request, _ in self._open.values()]
        waiting = [*sent, *self._parked, *(one for queue in self._undeclared.values() for one in queue)]
        return [request.ps for whose, request in waiting if whose is pending]

    def _take(self, reply: Message) -> bool:
        """Whether it brought us forward."""
        found = self._open.pop(reply.request, None)
        if found is None:
            return False  # of a request that was given up, or sent elsewhere
        pending, request, rooms = found
        if reply.status is Status.MOVED:
            self.moved += 1
            slot_map = _parsed(request.ps, reply, SlotMap.load)
            if slot_map.version > self._route.version:
                self._route = Route.of(slot_map)
            if self._route.version > request.message.version:
                self._again(pending, request)
                return True
            self._parked.append((pending, request))  # it does not hold them, and nobody else is known to
            return False
        if reply.status is Status.UNSEEN:
            self._sharing.forget(request.ps)
            if request.message.kind is not Kind.SHARE:
                self._send(pending, request)
            return True
        pending.open -= 1
        check(request.ps, reply)
        match request.message.kind:
            case Kind.PULL | Kind.LOOK:
                pending.clocks[request.ps] = min(reply.clock, pending.clocks.get(request.ps, reply.clock))
                if len(reply.parts) != len(request.shares):
                    raise PsRefused(f"{request.ps}: {len(reply.parts)} parts for {len(request.shares)} tables")
                for part, share, room in zip(reply.parts, request.shares, rooms, strict=True):
                    whole, rows = pending.rows[share.plan], room.rows if room else part.rows
                    expected = (len(share.ids), self.columns(share.table))
                    if rows.shape != expected:  # which NumPy might stretch
                        name = share.table
                        raise PsRefused(f"{request.ps}: table {name}: expected rows {expected}. Received: {rows.shape}")
                    if whole is None:
                        pending.rows[share.plan] = rows
                    else:
                        whole[share.place] = rows
            case Kind.PUSH:
                pending.is_stale |= reply.status is Status.STALE
            case Kind.DECLARE:
                self._numbers[request.ps] = _parsed(request.ps, reply, dict[str, int])
                if offer := self._sharing.offer(request.ps):
                    self._ask(request.ps, offer)
                for one in self._undeclared.pop(request.ps, []):
                    self._send(*one)
            case Kind.SHARE:
                self._sharing.seen(request.ps)
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
        self._known = {name: address for name, address in fleet.addresses.items() if name not in fleet.lost}
        gone = {name for name, address in self._lines.addresses.items() if self._known.get(name) != address}
        while gone and (replies := self._lines.receive(0.0)):  # what came before it was gone is not asked for again
            for reply in replies:
                self._take(reply)
        for name in gone:
            self._lines.disconnect(name)
            self._sharing.forget(name)
            self._numbers.pop(name, None)
            self._parked += self._undeclared.pop(name, [])
        for number, (pending, request, _) in list(self._open.items()):
            if request.ps in gone:
                del self._open[number]
                if request.shares:
                    self._parked.append((pending, request))
        self._try_again()

    def _try_again(self) -> None:
        for name, address in self._known.items():
            try:
                self._lines.connect(name, address)
            except PsUnreachable as exc:  # no descriptor is left: there may be one later
                _log.warning("%s; trying again", exc)
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
                pending.rows[number] = np.empty((len(ids), self.columns(table)), np.float32)
            for name, place in plan.places():
                inner = back[place]
                where = inner + outer.start if isinstance(outer, slice) else outer[inner]
                some = rows[inner] if len(rows) else rows
                shares.append((name, plan.route.version, Share(table, plan.ids[place], some, number, where)))
        # The clock of one ps says nothing at another.
        self.begin(pending, request.message, shares, {request.ps: request.message.clock})


def _parsed(name: PsId, reply: Message, load: Callable[[Any], T]) -> T:
    """What the text of a reply says."""
    try:
        return load(json.loads(reply.text))
    except (ValueError, KeyError, TypeError) as exc:
        raise PsRefused(f"{name}: an answer that cannot be read: {exc}") from exc
