"""A worker's side of the ps: one request to each of them for all tables together, answers whenever they come.

Nothing here has threads of its own: ZeroMQ sends and receives behind our back, so a pull that was begun before a
step and a push that nobody waits for cost the training thread their sending only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.line import Lines, PsUnreachable, check
from elasticdl.ps.plan import Plan, Route
from elasticdl.ps.slots import SlotMap, number_of
from elasticdl.ps.table import TableSpec
from elasticdl.ps.wire import NO_ROWS, Floats, Ids, Kind, Message, Part, Status
from elasticdl.spec import PsId

Place = slice | NDArray[np.int64]


class Request(NamedTuple):
    """One message, and for each of its parts which plan it is of and where in it its rows belong."""

    ps: PsId
    message: Message
    places: tuple[tuple[int, Place], ...]


class Pending:
    """Requests under way; `rows` is filled by the replies to a pull, plan by plan."""

    __slots__ = ("open", "rows")

    def __init__(self, rows: Sequence[Floats | None] = ()) -> None:
        self.open: dict[int, Request] = {}
        self.rows = list(rows)


class Client:
    """For one thread."""

    def __init__(
        self, addresses: Mapping[PsId, str], slot_map: SlotMap, token: str, sender: int, timeout_s: float
    ) -> None:
        self._lines = Lines(addresses, token, timeout_s)
        self._sender = sender
        self._batches = count(1)
        self._unsettled: set[int] = set()  # pushes without an answer
        self._open: dict[int, Pending] = {}  # by request
        self._tables: dict[str, TableSpec] = {}
        self._numbers: dict[PsId, dict[str, int]] = {}
        self.moved = 0  # answers that sent us elsewhere
        self._use(slot_map)

    def close(self) -> None:
        self._lines.close()

    def connect(self, name: PsId, address: str) -> None:
        """A ps that has come."""
        self._lines.connect(name, address)

    def declare(self, tables: Sequence[TableSpec]) -> None:
        """Make these tables known to every ps."""
        self._tables |= {table.name: table for table in tables}
        for name in self._route.members:
            self._declare(name)

    # ---- what a worker does in a step

    def plan(self, ids: Ids) -> Plan:
        return self._route.plan(ids)

    def begin_pull(self, plans: Mapping[str, Plan], *, create: bool = True) -> Pending:
        """Ask for the rows of these plans, by table."""
        pending = Pending([self._whole(table, plan) for table, plan in plans.items()])
        message = Message(Kind.PULL if create else Kind.LOOK, 0)
        self._begin(pending, message, list(plans.items()), lambda position, place: NO_ROWS)
        return pending

    def pulled(self, plans: Mapping[str, Plan], pending: Pending) -> dict[str, Floats]:
        """The rows, in the order of each plan's ids."""
        self._wait(pending)
        return {table: rows for table, rows in zip(plans, pending.rows, strict=True) if rows is not None}

    def begin_push(self, plans: Mapping[str, Plan], sums: Mapping[str, Floats], rate: float, step: int) -> Pending:
        """Send the gradients of a batch, summed by id. Each is counted once, however often it must be sent.

        The sums are sent as they lie there: they must not be written to until `pushed`.
        """
        pending, tables = Pending(), list(plans)
        message = Message(Kind.PUSH, 0, batch=self._next_batch(), step=step, rate=rate)
        self._begin(pending, message, list(plans.items()), lambda position, place: sums[tables[position]][place])
        self._settle(message.batch)
        return pending

    def pushed(self, pending: Pending) -> None:
        """Until every ps has applied it."""
        self._wait(pending)

    # ---- inside

    def _use(self, slot_map: SlotMap) -> None:
        if missing := set(slot_map.members) - set(self._lines.names):
            raise PsUnreachable(f"{', '.join(sorted(missing))}: its address is not known here")
        self._route = Route.of(slot_map)

    def _whole(self, table: str, plan: Plan) -> Floats | None:
        """The array that several answers fill; a single answer is the array itself."""
        if sum(count > 0 for count in plan.counts) == 1:
            return None
        return np.empty((len(plan.ids), self._tables[table].columns), np.float32)

    def _begin(
        self,
        pending: Pending,
        message: Message,
        plans: Sequence[tuple[str, Plan]],
        rows: Callable[[int, slice], Floats],
        belongs: Callable[[int, slice], tuple[int, Place]] = lambda position, place: (position, place),
    ) -> None:
        """Send to each ps what the plans have for it: `rows` gives what goes along, `belongs` where the answer goes."""
        for name in {name: None for _, plan in plans for name, _ in plan.places()}:
            self._declare(name)
        shares: dict[PsId, list[tuple[int, slice]]] = {}
        for position, (_, plan) in enumerate(plans):
            for name, place in plan.places():
                shares.setdefault(name, []).append((position, place))
        version = min((plan.route.version for _, plan in plans), default=0)
        for name, share in shares.items():
            numbers = self._numbers[name]
            parts = [
                Part(numbers[plans[position][0]], plans[position][1].ids[place], rows(position, place))
                for position, place in share
            ]
            places = tuple(belongs(position, place) for position, place in share)
            self._send(pending, name, message._replace(version=version, parts=tuple(parts)), places)

    def _declare(self, name: PsId) -> dict[str, int]:
        """The numbers of our tables at this ps, which may have come after we declared them."""
        known = self._numbers.get(name, {})
        if len(known) != len(self._tables):
            text = json.dumps([table.model_dump() for table in self._tables.values()]).encode()
            pending = Pending()
            self._send(pending, name, Message(Kind.DECLARE, 0, text=text), ())
            self._wait(pending)
            known = self._numbers[name]
        return known

    def _next_batch(self) -> int:
        batch = next(self._batches)
        self._unsettled.add(batch)
        return batch

    def _send(self, pending: Pending, name: PsId, message: Message, places: tuple[tuple[int, Place], ...]) -> None:
        settled = min(self._unsettled, default=0)
        message = message._replace(origin=number_of(name), sender=self._sender, settled=settled)
        request = self._lines.send(name, message)
        pending.open[request] = Request(name, message, places)
        self._open[request] = pending

    def _wait(self, pending: Pending) -> None:
        while pending.open:
            replies = self._lines.receive()
            if not replies:
                silent = sorted({request.ps for request in pending.open.values()})
                raise PsUnreachable(f"{', '.join(silent)}: no answer within {self._lines.timeout_s:g} s")
            for reply in replies:
                self._take(reply)

    def _take(self, reply: Message) -> None:
        pending = self._open.pop(reply.request, None)
        if pending is None:
            return  # of a request that was given up
        request = pending.open.pop(reply.request)
        if reply.status is Status.MOVED:
            self.moved += 1
            slot_map = SlotMap.load(json.loads(reply.text))
            if slot_map.version > self._route.version:
                self._use(slot_map)
            self._again(pending, request)
            return
        check(request.ps, reply)
        match request.message.kind:
            case Kind.PULL | Kind.LOOK:
                for part, (position, place) in zip(reply.parts, request.places, strict=True):
                    whole = pending.rows[position]
                    if whole is None:
                        pending.rows[position] = part.rows
                    else:
                        whole[place] = part.rows
            case Kind.PUSH:
                self._settle(request.message.batch)
            case Kind.DECLARE:
                self._numbers[request.ps] = json.loads(reply.text)

    def _settle(self, batch: int) -> None:
        if not any(r.message.batch == batch for pending in self._open.values() for r in pending.open.values()):
            self._unsettled.discard(batch)

    def _again(self, pending: Pending, request: Request) -> None:
        """Nothing of this request was done: ask those that hold the slots now, a push as a batch of its own."""
        old = request.message
        names = {number: table for table, number in self._numbers[request.ps].items()}
        plans = [(names[part.table], self.plan(part.ids)) for part in old.parts]
        # From places in a new plan to places in the old part, and from there to where the rows belong.
        back = [np.argsort(plan.inverse) for _, plan in plans]
        for (table, plan), (position, _) in zip(plans, request.places, strict=True):
            if pending.rows and pending.rows[position] is None:  # one answer becomes several
                pending.rows[position] = np.empty((len(plan.ids), self._tables[table].columns), np.float32)
        message = old._replace(batch=self._next_batch() if old.kind is Kind.PUSH else 0)

        def rows(part: int, place: slice) -> Floats:
            return old.parts[part].rows[back[part][place]] if old.kind is Kind.PUSH else NO_ROWS

        def belongs(part: int, place: slice) -> tuple[int, Place]:
            position, outer = request.places[part]
            inner = back[part][place]
            return position, inner + outer.start if isinstance(outer, slice) else outer[inner]

        self._begin(pending, message, plans, rows, belongs)
        if old.kind is Kind.PUSH:
            self._settle(old.batch)
            self._settle(message.batch)
