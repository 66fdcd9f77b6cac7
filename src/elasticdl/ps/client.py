"""A worker's side of the ps: one request to each of them for all tables together, answers whenever they come.

Nothing here has threads of its own: ZeroMQ sends and receives behind our back, so a pull that was begun before a
step and a push that nobody waits for cost the training thread their sending only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from elasticdl.ps.courier import Courier
from elasticdl.ps.fleet import Fleet
from elasticdl.ps.keys import Keys
from elasticdl.ps.pending import Pending as Pending
from elasticdl.ps.pending import Share
from elasticdl.ps.plan import Plan
from elasticdl.ps.table import TableSpec
from elasticdl.ps.wire import NO_ROWS, Floats, Ids, Kind, Message, Transport
from elasticdl.spec import PsId


class Client:
    """For one thread, except `use`."""

    def __init__(
        self,
        fleet: Fleet,
        token: str,
        timeout_s: float,
        *,
        transport: str = "float32",
        keys: Keys | None = None,
        shares: bool = True,
    ) -> None:
        """`shares`: whether memory is shared with those ps that are on this machine."""
        self._transport = Transport[transport.upper()]
        shares = shares and self._transport is Transport.FLOAT32
        self._courier = Courier(fleet, token, timeout_s, keys=keys, shares=shares)

    def close(self) -> None:
        self._courier.close()

    def use(self, fleet: Fleet) -> None:
        """A newer fleet, from any thread. Waiting calls wake up, and send elsewhere what those had that are lost."""
        self._courier.use(fleet)

    def declare(self, tables: Sequence[TableSpec]) -> None:
        """Make these tables known to every ps."""
        self._courier.declare(tables)

    @property
    def moved(self) -> int:
        """Answers that sent us elsewhere."""
        return self._courier.moved

    # ---- what a worker does in a step

    def plan(self, ids: Ids) -> Plan:
        return self._courier.route().plan(ids)

    def begin_pull(self, plans: Mapping[str, Plan], *, create: bool = True) -> Pending:
        """Ask for the rows of these plans, by table."""
        pending = Pending([self._whole(table, plan) for table, plan in plans.items()])
        message = Message(Kind.PULL if create else Kind.LOOK, 0, transport=self._transport)
        shares = (
            (name, plan.route.version, Share(table, plan.ids[place], NO_ROWS, number, place))
            for number, (table, plan) in enumerate(plans.items())
            for name, place in plan.places()
        )
        self._courier.begin(pending, message, shares, {})
        return pending

    def pulled(self, plans: Mapping[str, Plan], pending: Pending) -> dict[str, Floats]:
        """The rows, in the order of each plan's ids."""
        self._courier.wait(pending)
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
        self._courier.begin(pending, message, _with_rows(plans, sums), clocks or {})
        return pending

    def pushed(self, pending: Pending) -> bool:
        """Until every ps has it. False: one found it stale; compute it again under the same number."""
        self._courier.wait(pending)
        return not pending.is_stale

    def put(self, table: str, ids: Ids, rows: Floats) -> None:
        """Make rows with these values where there are none; of an id that is twice there the first counts."""
        plan = self.plan(ids)
        first = np.empty(len(plan.ids), np.int64)
        first[plan.inverse[::-1]] = np.arange(len(ids))[::-1]
        pending = Pending()
        self._courier.begin(pending, Message(Kind.PUT, 0), _with_rows({table: plan}, {table: rows[first]}), {})
        self._courier.wait(pending)

    def _whole(self, table: str, plan: Plan) -> Floats | None:
        """The array that several answers fill; a single answer is the array itself."""
        if sum(count > 0 for count in plan.counts) == 1:
            return None
        return np.empty((len(plan.ids), self._courier.columns(table)), np.float32)


def _with_rows(plans: Mapping[str, Plan], rows: Mapping[str, Floats]) -> Iterator[tuple[PsId, int, Share]]:
    for number, (table, plan) in enumerate(plans.items()):
        for name, place in plan.places():
            yield name, plan.route.version, Share(table, plan.ids[place], rows[table][place], number, place)
