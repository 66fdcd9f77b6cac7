"""Embedding rows of a batch: found before the model needs them, their gradients sent while the next one computes.

Knows no framework: layers ask for rows by table and ids, and give back what the backward pass has summed up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from elasticdl.errors import ModelError
from elasticdl.ps.client.lookup_plan import LookupPlan
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire.messages import Floats, Ids
from elasticdl.spec import PsId


class TableClient(Protocol):
    """What is needed of a `client.Client`; `local.Local` has the same for tables in this process."""

    def declare(self, tables: Sequence[TableSpec]) -> None: ...
    def plan(self, ids: Ids) -> LookupPlan: ...
    def begin_pull(self, plans: Mapping[str, LookupPlan], *, create: bool = True) -> Any: ...
    def finish_pull(self, plans: Mapping[str, LookupPlan], pending: Any) -> dict[str, Floats]: ...
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
    ) -> Any: ...
    def finish_push(self, pending: Any) -> bool: ...
    def insert_rows(self, table: str, ids: Ids, rows: Floats) -> None: ...


class LookupResult(NamedTuple):
    """`rows[plan.inverse]` are the rows of the ids that were asked for."""

    plan: LookupPlan
    rows: Floats


class _PreparedPush(NamedTuple):
    plans: dict[str, LookupPlan]
    sums: dict[str, Floats]
    sender: int
    number: int
    rate: float
    step: int
    clocks: dict[PsId, int]


class _Prefetch:
    """One pull for all that a batch will ask for; each table's ids lie behind one another in one plan."""

    def __init__(self, client: TableClient, ids: Mapping[str, Sequence[Ids]]) -> None:
        self._client = client
        self._asked = ids
        self._plans = _plan_tables(client, {table: np.concatenate(arrays) for table, arrays in ids.items()})
        self.pending = client.begin_pull(self._plans)
        self._rows: dict[str, Floats] | None = None

    def find(self, table: str, ids: Ids) -> LookupResult | None:
        """What was asked for these ids; None where they were not foreseen."""
        start = 0
        for requested in self._asked.get(table, ()):
            if np.array_equal(requested, ids):
                if self._rows is None:
                    self._rows = self._client.finish_pull(self._plans, self.pending)
                plan = self._plans[table]
                return LookupResult(plan._replace(inverse=plan.inverse[start : start + len(ids)]), self._rows[table])
            start += len(requested)
        return None


def _plan_tables(client: TableClient, ids: Mapping[str, Ids]) -> dict[str, LookupPlan]:
    """A plan for each table; one serves all that are asked for the same ids."""
    plans: dict[str, LookupPlan] = {}
    for table, table_ids in ids.items():
        same = next((planned for planned in plans if np.array_equal(ids[planned], table_ids)), None)
        plans[table] = client.plan(table_ids) if same is None else plans[same]
    return plans


class EmbeddingLookups:
    """For the training thread: find rows, give gradients, push; `depth` batches may be under way beside this one.

    With a depth of 0 nothing is pulled ahead and every push is waited for.
    """

    def __init__(self, client: TableClient, depth: int) -> None:
        self.client = client
        self._depth = depth
        self._ahead: deque[_Prefetch] = deque()
        self._foreseen: _Prefetch | None = None  # of the batch that computes
        self._found: dict[str, list[tuple[Ids, LookupResult]]] = {}
        self._given: dict[str, list[tuple[LookupPlan, Floats]]] = {}
        self._clocks: dict[PsId, int] = {}  # of the rows this batch computes with, at each ps
        self._held: list[_PreparedPush] | None = None
        self._pushes: deque[tuple[_PreparedPush, Any]] = deque()
        self.prefetched = 0  # lookups that were answered before they were asked
        self.clock = 0  # updates there were at most, as far as is known
        # Told of each push that is in the rows, by sender and number; or that a ps found it stale, and took none of it.
        self.on_pushed: Callable[[int, int, bool], None] = lambda sender, number, is_stale: None

    def declare(self, tables: Sequence[TableSpec]) -> None:
        self.client.declare(tables)

    def prefetch(self, ids: Mapping[str, Ids | Sequence[Ids]]) -> None:
        """Ask for the rows of the next batch, meanwhile; a table that is asked several times has several arrays."""
        if ids and len(self._ahead) < self._depth:
            arrays = {
                table: [
                    flatten_ids(table, array)
                    for array in ([table_ids] if isinstance(table_ids, np.ndarray) else table_ids)
                ]
                for table, table_ids in ids.items()
            }
            self._ahead.append(_Prefetch(self.client, arrays))

    # ---- one batch

    def begin_batch(self) -> None:
        """A batch begins: what was pulled ahead first is for it."""
        self._found, self._given, self._clocks = {}, {}, {}
        self._foreseen = self._ahead.popleft() if self._ahead else None

    def lookup(self, table: str, ids: Ids, *, create: bool = True) -> LookupResult:
        """The rows of these ids. Asked twice in a batch, until its push, the answer is the same."""
        ids = flatten_ids(table, ids)
        for requested, result in self._found.get(table, ()):
            if np.array_equal(requested, ids):
                return result
        prefetched = self._foreseen.find(table, ids) if self._foreseen is not None and create else None
        if prefetched is not None:
            assert self._foreseen is not None
            self.prefetched += 1
            self._read(self._foreseen.pending.clocks)
        result = prefetched or self._pull(table, ids, create)
        self._found.setdefault(table, []).append((ids, result))
        return result

    def lookup_latest(self, table: str, ids: Ids) -> LookupResult:
        """The rows of these ids as they are now, whatever was pulled before. Between two batches."""
        plans = {table: self.client.plan(flatten_ids(table, ids))}
        pending = self.client.begin_pull(plans)
        return LookupResult(plans[table], self.client.finish_pull(plans, pending)[table])

    def add_gradients(self, table: str, result: LookupResult, gradients: Floats) -> None:
        """The gradient of `found.rows`."""
        self._given.setdefault(table, []).append((result.plan, gradients))

    def push_gradients(self, *, sender: int, number: int, rate: float, step: int) -> None:
        """Send all gradients given since `begin` in the background, one request to each ps."""
        plans, sums = {}, {}
        for table, gradients in self._given.items():
            plans[table], sums[table] = self._summed(gradients)
        self._found, self._given = {}, {}
        if not plans:
            return
        push = _PreparedPush(plans, sums, sender, number, rate, step, self._clocks)
        if self._held is not None:
            self._held.append(push)
        else:
            self._send(push)

    # ---- between batches

    def hold_pushes(self) -> None:
        """Keep pushes here from now on, until `release`."""
        self._held = self._held or []

    def release_pushes(self) -> None:
        """Send what was held."""
        held_pushes, self._held = self._held or [], None
        for push in held_pushes:
            self._send(push)

    def discard_unsent(self) -> None:
        """The batches since the last push that was sent will be computed again: forget what there is of them."""
        self._found, self._given, self._clocks, self._foreseen = {}, {}, {}, None
        self._ahead.clear()
        if self._held is not None:
            self._held = []

    def wait_for_pushes(self) -> None:
        """Until every push that was sent is in the rows."""
        self._wait(max_pending=0)

    def _pull(self, table: str, ids: Ids, create: bool) -> LookupResult:
        plans = {table: self.client.plan(ids)}
        pending = self.client.begin_pull(plans, create=create)
        rows = self.client.finish_pull(plans, pending)[table]
        self._read(pending.clocks)
        return LookupResult(plans[table], rows)

    def _read(self, clocks: Mapping[PsId, int]) -> None:
        """A batch is as old as the oldest of its rows."""
        for name, clock in clocks.items():
            self._clocks[name] = min(clock, self._clocks.get(name, clock))
            self.clock = max(self.clock, clock)

    def _summed(self, gradients: Sequence[tuple[LookupPlan, Floats]]) -> tuple[LookupPlan, Floats]:
        """Of one table: a row is updated once for a batch, wherever its gradients came from."""
        plan, sums = gradients[0]
        if len(gradients) == 1:
            return plan, sums
        if all(table_plan.ids is plan.ids for table_plan, _ in gradients):  # of one pull ahead
            return plan, np.sum([part for _, part in gradients], axis=0, dtype=np.float32)
        plan = self.client.plan(np.concatenate([table_plan.ids for table_plan, _ in gradients]))
        return plan, plan.sum_gradients(np.concatenate([part for _, part in gradients]))

    def _send(self, push: _PreparedPush) -> None:
        pending = self.client.begin_push(
            push.plans, push.sums, sender=push.sender, number=push.number, rate=push.rate, step=push.step,
            clocks=push.clocks,
        )  # fmt: skip
        self._pushes.append((push, pending))  # its arrays are sent as they lie there
        self._wait(max_pending=self._depth)

    def _wait(self, max_pending: int) -> None:
        while len(self._pushes) > max_pending:
            push, pending = self._pushes.popleft()
            self.on_pushed(push.sender, push.number, not self.client.finish_push(pending))


def flatten_ids(table: str, ids: Ids) -> Ids:
    """Ids as the ps take them. Raises ModelError where they are no ids."""
    if ids.dtype.kind not in "iu":
        raise ModelError(f"table {table}: expected integers as ids. Received: {ids.dtype} of shape {ids.shape}")
    return np.ascontiguousarray(ids, np.int64).reshape(-1)


def batch_slices(ids: Ids, most: int) -> Iterable[slice]:
    """Places of `ids`, at most so many at a time."""
    return (slice(start, start + most) for start in range(0, len(ids), most))
