"""Embedding rows of a batch: pulled before the model needs them, their gradients pushed while the next one computes.

This module knows no framework: layers look up rows by table and ids, and add the gradients of the backward pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from elasticdl.errors import ModelError
from elasticdl.ps.client.lookup_plan import LookupPlan
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire.messages import Floats, Ids
from elasticdl.spec import PsId


class TableClient(Protocol):
    """The interface of `PsClient`, which `LocalTables` has for tables in this process and `TablePuller` for files."""

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
    """`rows[plan.inverse]` are the rows of the ids that were looked up."""

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
    """One pull for all lookups of a batch; the ids of each table are concatenated in one plan."""

    def __init__(self, client: TableClient, ids: Mapping[str, Sequence[Ids]]) -> None:
        self._client = client
        self._ids = ids
        self._plans = _plan_tables(client, {table: np.concatenate(arrays) for table, arrays in ids.items()})
        self.pending = client.begin_pull(self._plans)
        self._rows: dict[str, Floats] | None = None

    def find(self, table: str, ids: Ids) -> LookupResult | None:
        """The result for these ids; None where they were not prefetched."""
        start = 0
        for requested in self._ids.get(table, ()):
            if np.array_equal(requested, ids):
                if self._rows is None:
                    self._rows = self._client.finish_pull(self._plans, self.pending)
                plan = self._plans[table]
                return LookupResult(plan._replace(inverse=plan.inverse[start : start + len(ids)]), self._rows[table])
            start += len(requested)
        return None


def _plan_tables(client: TableClient, ids: Mapping[str, Ids]) -> dict[str, LookupPlan]:
    """Returns a plan for each table; tables with the same ids share one."""
    plans: dict[str, LookupPlan] = {}
    for table, table_ids in ids.items():
        same = next((planned for planned in plans if np.array_equal(ids[planned], table_ids)), None)
        plans[table] = client.plan(table_ids) if same is None else plans[same]
    return plans


class EmbeddingLookups:
    """Looks up rows and pushes gradients, for the training thread; `depth` batches may be open besides this one.

    With a depth of 0 nothing is prefetched and every push is waited for.
    """

    def __init__(self, client: TableClient, depth: int) -> None:
        self.client = client
        self._depth = depth
        self._prefetches: deque[_Prefetch] = deque()
        self._prefetch: _Prefetch | None = None  # of this batch
        self._results: dict[str, list[tuple[Ids, LookupResult]]] = {}
        self._gradients: dict[str, list[tuple[LookupPlan, Floats]]] = {}
        self._clocks: dict[PsId, int] = {}  # of the rows of this batch, by ps
        self._held: list[_PreparedPush] | None = None
        self._pushes: deque[tuple[_PreparedPush, Any]] = deque()
        self.prefetched = 0  # lookups that a prefetch answered
        self.clock = 0  # the highest clock of a ps that is known
        # Called for each push that is in the rows, by sender and number, or that a ps refused as stale.
        self.on_pushed: Callable[[int, int, bool], None] = lambda sender, number, is_stale: None

    def declare(self, tables: Sequence[TableSpec]) -> None:
        self.client.declare(tables)

    def prefetch(self, ids: Mapping[str, Ids | Sequence[Ids]]) -> None:
        """Pulls the rows of the next batch in the background; a table with several lookups has several arrays."""
        if ids and len(self._prefetches) < self._depth:
            arrays = {
                table: [
                    flatten_ids(table, array)
                    for array in ([table_ids] if isinstance(table_ids, np.ndarray) else table_ids)
                ]
                for table, table_ids in ids.items()
            }
            self._prefetches.append(_Prefetch(self.client, arrays))

    # ---- one batch

    def begin_batch(self) -> None:
        """Begins a batch, which uses the oldest prefetch."""
        self._results, self._gradients, self._clocks = {}, {}, {}
        self._prefetch = self._prefetches.popleft() if self._prefetches else None

    def lookup(self, table: str, ids: Ids, *, create: bool = True) -> LookupResult:
        """The rows of these ids. Two lookups of the same ids in a batch have the same result."""
        ids = flatten_ids(table, ids)
        for requested, result in self._results.get(table, ()):
            if np.array_equal(requested, ids):
                return result
        prefetched = self._prefetch.find(table, ids) if self._prefetch is not None and create else None
        if prefetched is not None:
            assert self._prefetch is not None
            self.prefetched += 1
            self._record_clocks(self._prefetch.pending.clocks)
        result = prefetched or self._pull(table, ids, create)
        self._results.setdefault(table, []).append((ids, result))
        return result

    def lookup_latest(self, table: str, ids: Ids) -> LookupResult:
        """The rows of these ids as they are now, without any prefetch. Call it between two batches."""
        plans = {table: self.client.plan(flatten_ids(table, ids))}
        pending = self.client.begin_pull(plans)
        return LookupResult(plans[table], self.client.finish_pull(plans, pending)[table])

    def add_gradients(self, table: str, result: LookupResult, gradients: Floats) -> None:
        """Adds the gradient of `result.rows`."""
        self._gradients.setdefault(table, []).append((result.plan, gradients))

    def push_gradients(self, *, sender: int, number: int, rate: float, step: int) -> None:
        """Sends all gradients added since `begin_batch` in the background, one request to each ps."""
        plans, sums = {}, {}
        for table, gradients in self._gradients.items():
            plans[table], sums[table] = self._sum_gradients(gradients)
        self._results, self._gradients = {}, {}
        if not plans:
            return
        push = _PreparedPush(plans, sums, sender, number, rate, step, self._clocks)
        if self._held is not None:
            self._held.append(push)
        else:
            self._send(push)

    # ---- between batches

    def hold_pushes(self) -> None:
        """Holds pushes back from now on, until `release_pushes`."""
        self._held = self._held or []

    def release_pushes(self) -> None:
        """Sends the pushes that were held back."""
        held_pushes, self._held = self._held or [], None
        for push in held_pushes:
            self._send(push)

    def discard_unsent(self) -> None:
        """Forgets the batches since the last push that was sent; they will be computed again."""
        self._results, self._gradients, self._clocks, self._prefetch = {}, {}, {}, None
        self._prefetches.clear()
        if self._held is not None:
            self._held = []

    def wait_for_pushes(self) -> None:
        """Waits until every push that was sent is in the rows."""
        self._wait(max_pending=0)

    def _pull(self, table: str, ids: Ids, create: bool) -> LookupResult:
        plans = {table: self.client.plan(ids)}
        pending = self.client.begin_pull(plans, create=create)
        rows = self.client.finish_pull(plans, pending)[table]
        self._record_clocks(pending.clocks)
        return LookupResult(plans[table], rows)

    def _record_clocks(self, clocks: Mapping[PsId, int]) -> None:
        """Records the clocks of pulled rows: a batch is as old as the oldest of its rows."""
        for name, clock in clocks.items():
            self._clocks[name] = min(clock, self._clocks.get(name, clock))
            self.clock = max(self.clock, clock)

    def _sum_gradients(self, gradients: Sequence[tuple[LookupPlan, Floats]]) -> tuple[LookupPlan, Floats]:
        """Sums the gradients of a table by id, so that a batch updates each row once."""
        plan, sums = gradients[0]
        if len(gradients) == 1:
            return plan, sums
        if all(table_plan.ids is plan.ids for table_plan, _ in gradients):  # of one prefetch
            return plan, np.sum([part for _, part in gradients], axis=0, dtype=np.float32)
        plan = self.client.plan(np.concatenate([table_plan.ids for table_plan, _ in gradients]))
        return plan, plan.sum_gradients(np.concatenate([part for _, part in gradients]))

    def _send(self, push: _PreparedPush) -> None:
        pending = self.client.begin_push(
            push.plans, push.sums, sender=push.sender, number=push.number, rate=push.rate, step=push.step,
            clocks=push.clocks,
        )  # fmt: skip
        self._pushes.append((push, pending))  # keeps its arrays alive until they are sent
        self._wait(max_pending=self._depth)

    def _wait(self, max_pending: int) -> None:
        while len(self._pushes) > max_pending:
            push, pending = self._pushes.popleft()
            self.on_pushed(push.sender, push.number, not self.client.finish_push(pending))


def flatten_ids(table: str, ids: Ids) -> Ids:
    """Flattens ids for the ps. Raises ModelError where they are not integers."""
    if ids.dtype.kind not in "iu":
        raise ModelError(f"table {table}: expected integers as ids. Received: {ids.dtype} of shape {ids.shape}")
    return np.ascontiguousarray(ids, np.int64).reshape(-1)
