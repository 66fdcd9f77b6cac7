"""A worker's client of all ps: one request to each ps for all tables together.

The client has no threads of its own: ZeroMQ sends and receives in the background, so a pull that is sent before a step
and a push that is not waited for cost the training thread only the time to send them.

A request stays in memory until it is answered. If its ps replies that the slots have moved, or is lost, the ids are
planned again and sent to their present owners; a push keeps its sender and number, so that each slot applies it once.
While the slots have no owner, the request is parked until there is news of the fleet.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy as np

from elasticdl.ps.client.lookup_plan import LookupPlan, RoutingTable
from elasticdl.ps.client.pending import PendingReplies, PsRequest, RequestBuffers, RequestPart, SharedBuffers
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire.connections import PsConnections, PsRefused, PsUnreachable, raise_for_status
from elasticdl.ps.wire.keys import CurveKeys
from elasticdl.ps.wire.messages import NO_ROWS, Floats, Ids, MessageKind, PsMessage, ReplyStatus, TablePart, WireDtype
from elasticdl.spec import PsId

T = TypeVar("T")

_log = logging.getLogger(__name__)

_RETRY_S = 0.2  # parked requests are sent again this often, also without news of the fleet


class RequestRouter:
    """Sends requests to the owners of slots, and again where slots move. For one thread, except `update_fleet`."""

    def __init__(self, fleet: FleetView, token: str, timeout_s: float, *, keys: CurveKeys | None, shares: bool) -> None:
        self._connections = PsConnections({}, token, timeout_s, keys)
        self._shared_buffers = SharedBuffers(is_on=shares)
        self._lock = threading.Lock()  # guards the news of the fleet
        self._newest_fleet: FleetView | None = None
        self._is_closed = False
        self._lost: frozenset[PsId] = frozenset()
        self._open: dict[int, tuple[PendingReplies, PsRequest, RequestBuffers]] = {}  # by the number of the request
        self._parked: list[tuple[PendingReplies, PsRequest]] = []  # for ps that are lost, or not known yet
        self._undeclared: dict[PsId, list[tuple[PendingReplies, PsRequest]]] = {}  # wait until the tables are declared
        self._inbox: deque[PsMessage] = deque()
        self._tables: dict[str, TableSpec] = {}
        self._numbers: dict[PsId, dict[str, int]] = {}
        self._tried_at = 0.0
        self._fleet_version = 0  # the version of the newest fleet
        self._known: dict[PsId, str] = {}  # addresses of the ps that are not lost
        self.redirects = 0  # replies that named another owner
        self._route = RoutingTable.from_slot_map(fleet.slot_map)
        self._initial_fleet = fleet

    def open(self) -> None:
        self._connections.open()
        self._apply_fleet(self._initial_fleet)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._connections.close()
            self._shared_buffers.close()

    def update_fleet(self, fleet: FleetView) -> None:
        """Takes over a newer fleet. May be called from any thread."""
        with self._lock:
            if not self._is_closed:
                self._newest_fleet = fleet
                self._connections.wake()

    def routing_table(self) -> RoutingTable:
        """Returns the newest known routing table."""
        self._apply_news()
        return self._route

    def columns(self, table: str) -> int:
        return self._tables[table].columns

    def declare(self, tables: Sequence[TableSpec]) -> None:
        """Declares these tables at every ps."""
        self._tables |= {table.name: table for table in tables}
        self._apply_news()
        while undeclared := [name for name in self._route.members if not self._is_declared_at(name)]:
            for name in undeclared:
                self._declare(name)
            self._wait_until(lambda: not self._undeclared, lambda: list(self._undeclared))

    # ---- sending

    def send(
        self,
        pending: PendingReplies,
        message: PsMessage,
        shares: Iterable[tuple[PsId, int, RequestPart]],
        clocks: Mapping[PsId, int],
    ) -> None:
        """Sends each ps its parts, in one message with the version of the slot map they were planned with."""
        requests: dict[PsId, list[RequestPart]] = {}
        version = 0
        for name, part_version, part in shares:
            requests.setdefault(name, []).append(part)
            version = min(version, part_version) if version else part_version
        for name, parts in requests.items():
            request_message = message._replace(map_version=version, clock=clocks.get(name, 0))
            pending.open_count += 1
            self._send(pending, PsRequest(name, request_message, tuple(parts)))

    def _send(self, pending: PendingReplies, request: PsRequest) -> None:
        name = request.ps
        if name in self._lost or name not in self._connections.addresses:
            self._parked.append((pending, request))
            return
        numbers = self._numbers.get(name, {})
        if not all(part.table in numbers for part in request.parts):
            self._declare(name)
            self._undeclared[name].append((pending, request))
            return
        buffers = self._shared_buffers.allocate(request, self.columns)
        parts = tuple(
            TablePart(numbers[part.table], part.ids, part.rows) if buffer is None
            else TablePart(numbers[part.table], buffer.ids, buffer.rows, buffer.offset)
            for part, buffer in zip(request.parts, buffers, strict=True)
        )  # fmt: skip
        memory = self._shared_buffers.memory_name(name) if any(buffers) else 0
        number = self._connections.send(name, request.message._replace(parts=parts, memory=memory))
        self._open[number] = (pending, request, buffers)

    def _is_declared_at(self, name: PsId) -> bool:
        """Whether the tables are declared at this ps; at one without a connection they are declared later."""
        return name not in self._connections.addresses or self._tables.keys() <= self._numbers.get(name, {}).keys()

    def _declare(self, name: PsId) -> None:
        if name in self._undeclared:
            return
        self._undeclared[name] = []
        text = json.dumps([table.model_dump() for table in self._tables.values()]).encode()
        self._send_control(name, PsMessage(MessageKind.DECLARE, 0, text=text))

    def _send_control(self, name: PsId, message: PsMessage) -> None:
        pending = PendingReplies()
        pending.open_count = 1
        self._open[self._connections.send(name, message)] = (pending, PsRequest(name, message, ()), ())

    # ---- waiting

    def wait(self, pending: PendingReplies) -> None:
        if pending.open_count:
            self._wait_until(lambda: not pending.open_count, lambda: self._unanswered_ps(pending))

    def _wait_until(self, is_done: Callable[[], bool], silent: Callable[[], list[PsId]]) -> None:
        heard_at = time.monotonic()
        while not is_done():
            now = time.monotonic()
            left_s = heard_at + self._connections.timeout_s - now
            if left_s <= 0:
                names = ", ".join(sorted(set(silent())))
                raise PsUnreachable(f"{names}: no answer within {self._connections.timeout_s:g} s")
            if self._parked and now >= self._tried_at + _RETRY_S:
                self._tried_at = now
                self._retry_parked()
            if not self._inbox:
                self._inbox += self._connections.receive(min(left_s, _RETRY_S) if self._parked else left_s)
            is_news = False
            # Before the news of the fleet: a reply counts even if its ps is lost by now. A refusal raises; the replies
            # after it stay in the inbox for the next wait.
            while self._inbox:
                is_news |= self._handle_reply(self._inbox.popleft())
            if self._apply_news() or is_news:
                heard_at = time.monotonic()

    def _unanswered_ps(self, pending: PendingReplies) -> list[PsId]:
        sent = [(owner, request) for owner, request, _ in self._open.values()]
        waiting = [*sent, *self._parked, *(entry for queue in self._undeclared.values() for entry in queue)]
        return [request.ps for owner, request in waiting if owner is pending]

    def _handle_reply(self, reply: PsMessage) -> bool:
        """Handles one reply; returns whether it made progress."""
        entry = self._open.pop(reply.request, None)
        if entry is None:
            return False  # the request was given up or sent to another ps
        pending, request, buffers = entry
        if reply.status is ReplyStatus.MOVED:
            self.redirects += 1
            slot_map = _parse_reply(request.ps, reply, SlotMap.from_document)
            if slot_map.version > self._route.version:
                self._route = RoutingTable.from_slot_map(slot_map)
            if self._route.version > request.message.map_version:
                self._resend(pending, request)
                return True
            self._parked.append((pending, request))  # it does not own the slots, and no other owner is known
            return False
        if reply.status is ReplyStatus.MEMORY_NOT_FOUND:
            self._shared_buffers.forget(request.ps)
            if request.message.kind is not MessageKind.OPEN_MEMORY:
                self._send(pending, request)
            return True
        pending.open_count -= 1
        raise_for_status(request.ps, reply)
        match request.message.kind:
            case MessageKind.PULL | MessageKind.PULL_EXISTING:
                pending.clocks[request.ps] = min(reply.clock, pending.clocks.get(request.ps, reply.clock))
                if len(reply.parts) != len(request.parts):
                    raise PsRefused(f"{request.ps}: {len(reply.parts)} parts for {len(request.parts)} tables")
                for part, request_part, buffer in zip(reply.parts, request.parts, buffers, strict=True):
                    all_rows, rows = pending.rows[request_part.plan_number], buffer.rows if buffer else part.rows
                    expected = (len(request_part.ids), self.columns(request_part.table))
                    if rows.shape != expected:  # NumPy might broadcast it
                        name = request_part.table
                        raise PsRefused(f"{request.ps}: table {name}: expected rows {expected}. Received: {rows.shape}")
                    if all_rows is None:
                        pending.rows[request_part.plan_number] = rows
                    else:
                        all_rows[request_part.positions] = rows
            case MessageKind.PUSH:
                pending.is_stale |= reply.status is ReplyStatus.STALE
            case MessageKind.DECLARE:
                self._numbers[request.ps] = _parse_reply(request.ps, reply, dict[str, int])
                if offer := self._shared_buffers.offer_memory(request.ps):
                    self._send_control(request.ps, offer)
                for delayed in self._undeclared.pop(request.ps, []):
                    self._send(*delayed)
            case MessageKind.OPEN_MEMORY:
                self._shared_buffers.confirm(request.ps)
        return True

    # ---- the fleet changes

    def _apply_news(self) -> bool:
        """Applies news of the fleet; returns whether there was any."""
        if self._newest_fleet is None:
            return False
        with self._lock:
            fleet, self._newest_fleet = self._newest_fleet, None
        if fleet is not None and fleet.version >= self._fleet_version:
            self._apply_fleet(fleet)
        return True

    def _apply_fleet(self, fleet: FleetView) -> None:
        self._fleet_version, self._lost = fleet.version, fleet.lost
        if fleet.version > self._route.version:
            self._route = RoutingTable.from_slot_map(fleet.slot_map)
        self._known = {name: address for name, address in fleet.addresses.items() if name not in fleet.lost}
        gone = {name for name, address in self._connections.addresses.items() if self._known.get(name) != address}
        while gone and (
            replies := self._connections.receive(0.0)
        ):  # a reply that came before the ps was gone need not be requested again
            for reply in replies:
                self._handle_reply(reply)
        for name in gone:
            self._connections.disconnect(name)
            self._shared_buffers.forget(name)
            self._numbers.pop(name, None)
            self._parked += self._undeclared.pop(name, [])
        for number, (pending, request, _) in list(self._open.items()):
            if request.ps in gone:
                del self._open[number]
                if request.parts:
                    self._parked.append((pending, request))
        self._retry_parked()

    def _retry_parked(self) -> None:
        for name, address in self._known.items():
            try:
                self._connections.connect(name, address)
            except PsUnreachable as exc:  # no descriptor is left; there may be one later
                _log.warning("%s; trying again", exc)
        parked, self._parked = self._parked, []
        for pending, request in parked:
            self._resend(pending, request)

    def _resend(self, pending: PendingReplies, request: PsRequest) -> None:
        """Plans a request again and sends it to the ps that own the slots now."""
        pending.open_count -= 1
        shares = []
        for table, ids, rows, number, outer in request.parts:
            plan = self._route.plan(ids)
            back = np.argsort(plan.inverse)  # from positions in the new plan to positions in this part
            if pending.rows and pending.rows[number] is None:  # one reply may become several
                pending.rows[number] = np.empty((len(ids), self.columns(table)), np.float32)
            for name, positions in plan.slices_by_ps():
                inner = back[positions]
                where = inner + outer.start if isinstance(outer, slice) else outer[inner]
                part_rows = rows[inner] if len(rows) else rows
                shares.append(
                    (
                        name,
                        plan.routing_table.version,
                        RequestPart(table, plan.ids[positions], part_rows, number, where),
                    )
                )
        # The clock of one ps has no meaning at another.
        self.send(pending, request.message, shares, {request.ps: request.message.clock})


def _parse_reply(name: PsId, reply: PsMessage, load: Callable[[Any], T]) -> T:
    """Parses the text of a reply."""
    try:
        return load(json.loads(reply.text))
    except (ValueError, KeyError, TypeError) as exc:
        raise PsRefused(f"{name}: its reply cannot be read: {exc}") from exc


class PsClient:
    """Pulls and pushes rows, from `open` until `close`, or inside of `with`. For one thread, except `update_fleet`."""

    def __init__(
        self,
        fleet: FleetView,
        token: str,
        timeout_s: float,
        *,
        transport: str = "float32",
        keys: CurveKeys | None = None,
        shares: bool = True,
    ) -> None:
        """`shares`: whether to share memory with the ps on this machine."""
        self._transport = WireDtype[transport.upper()]
        shares = shares and self._transport is WireDtype.FLOAT32
        self._router = RequestRouter(fleet, token, timeout_s, keys=keys, shares=shares)

    def open(self) -> Self:
        """Connects to the ps of the fleet."""
        self._router.open()
        return self

    def close(self) -> None:
        self._router.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def update_fleet(self, fleet: FleetView) -> None:
        """Takes over a newer fleet, from any thread. Requests to lost ps are sent to the new owners."""
        self._router.update_fleet(fleet)

    def declare(self, tables: Sequence[TableSpec]) -> None:
        """Declares these tables at every ps."""
        self._router.declare(tables)

    @property
    def redirects(self) -> int:
        """Replies that named another owner."""
        return self._router.redirects

    # ---- what a worker does in a step

    def plan(self, ids: Ids) -> LookupPlan:
        return self._router.routing_table().plan(ids)

    def begin_pull(self, plans: Mapping[str, LookupPlan], *, create: bool = True) -> PendingReplies:
        """Sends requests for the rows of these plans, by table."""
        pending = PendingReplies([self._allocate_rows(table, plan) for table, plan in plans.items()])
        message = PsMessage(MessageKind.PULL if create else MessageKind.PULL_EXISTING, 0, dtype=self._transport)
        shares = (
            (name, plan.routing_table.version, RequestPart(table, plan.ids[positions], NO_ROWS, number, positions))
            for number, (table, plan) in enumerate(plans.items())
            for name, positions in plan.slices_by_ps()
        )
        self._router.send(pending, message, shares, {})
        return pending

    def finish_pull(self, plans: Mapping[str, LookupPlan], pending: PendingReplies) -> dict[str, Floats]:
        """Waits for the rows, in the order of each plan's ids."""
        self._router.wait(pending)
        return {table: rows for table, rows in zip(plans, pending.rows, strict=True) if rows is not None}

    def begin_push(
        self,
        plans: Mapping[str, LookupPlan],
        sums: Mapping[str, Floats],
        *,
        sender: int,
        number: int,
        rate: float,
        step: int,
        clocks: Mapping[PsId, int] | None = None,
    ) -> PendingReplies:
        """Sends the gradients of a batch, summed by id; `clocks` are those of the pull they were computed with.

        A push is applied once for its sender and number, even if it is sent or computed more than once; with number 0
        it is applied each time. The sums are not copied: do not write to them until `finish_push`.
        """
        pending = PendingReplies()
        message = PsMessage(
            MessageKind.PUSH, 0, sender=sender, push_number=number, step=step, learning_rate=rate, dtype=self._transport
        )
        self._router.send(pending, message, _split_by_ps(plans, sums), clocks or {})
        return pending

    def finish_push(self, pending: PendingReplies) -> bool:
        """Waits until every ps has applied it. False: it was stale for a ps; compute it again under the same number."""
        self._router.wait(pending)
        return not pending.is_stale

    def insert_rows(self, table: str, ids: Ids, rows: Floats) -> None:
        """Inserts rows for ids that have none. If an id occurs twice, its first row counts."""
        plan = self.plan(ids)
        first = np.empty(len(plan.ids), np.int64)
        first[plan.inverse[::-1]] = np.arange(len(ids))[::-1]
        pending = PendingReplies()
        self._router.send(
            pending, PsMessage(MessageKind.INSERT, 0), _split_by_ps({table: plan}, {table: rows[first]}), {}
        )
        self._router.wait(pending)

    def _allocate_rows(self, table: str, plan: LookupPlan) -> Floats | None:
        """Allocates the array that several replies fill. None: a single reply is the array."""
        if sum(count > 0 for count in plan.counts) == 1:
            return None
        return np.empty((len(plan.ids), self._router.columns(table)), np.float32)


def _split_by_ps(
    plans: Mapping[str, LookupPlan], rows: Mapping[str, Floats]
) -> Iterator[tuple[PsId, int, RequestPart]]:
    for number, (table, plan) in enumerate(plans.items()):
        for name, positions in plan.slices_by_ps():
            yield (
                name,
                plan.routing_table.version,
                RequestPart(table, plan.ids[positions], rows[table][positions], number, positions),
            )
