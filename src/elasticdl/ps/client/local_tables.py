"""Embedding tables in this process, for a script that runs alone, with the interface of a `PsClient`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from elasticdl.ps import _native
from elasticdl.ps.client.lookup_plan import LookupPlan, RoutingTable
from elasticdl.ps.slots import SLOTS, SlotMap
from elasticdl.ps.tables.table import TableSpec, create_table
from elasticdl.ps.wire.messages import Floats, Ids
from elasticdl.spec import PsId

_ALL_SLOTS = np.ones(SLOTS, np.uint8)


class LocalPull(NamedTuple):
    """The result of a pull."""

    rows: dict[str, Floats]
    clocks: dict[PsId, int]  # empty: a push here is never stale


class LocalTables:
    """Tables in this process. For one thread; every call is complete when it returns."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._route = RoutingTable.from_slot_map(SlotMap.initial([PsId("ps-0")]))
        self._specs: dict[str, TableSpec] = {}
        self._tables: dict[str, _native.Table] = {}

    def declare(self, tables: Sequence[TableSpec]) -> None:
        for spec in tables:
            if spec.name not in self._tables:
                self._specs[spec.name] = spec
                self._tables[spec.name] = create_table(spec, self._seed)

    def plan(self, ids: Ids) -> LookupPlan:
        return self._route.plan(ids)

    def begin_pull(self, plans: Mapping[str, LookupPlan], *, create: bool = True) -> LocalPull:
        rows = {name: np.empty((len(plan.ids), self._specs[name].columns), np.float32) for name, plan in plans.items()}
        for name, plan in plans.items():
            self._tables[name].pull(plan.ids, rows[name], create=create)
        return LocalPull(rows, {})

    def finish_pull(self, plans: Mapping[str, LookupPlan], pending: LocalPull) -> dict[str, Floats]:
        return pending.rows

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
    ) -> None:
        for name, plan in plans.items():
            self._tables[name].push(plan.ids, np.ascontiguousarray(sums[name], np.float32), rate, step)

    def finish_push(self, pending: None) -> bool:
        return True

    def insert_rows(self, table: str, ids: Ids, rows: Floats) -> None:
        """Inserts rows for ids that have none."""
        # Only the native core knows the initial state of a rule: take it from a row that it creates.
        first = create_table(self._specs[table], self._seed)
        first.pull(ids[:1], np.empty((len(ids[:1]), first.columns), np.float32))
        state = np.concatenate([first.collect(stripe, _ALL_SLOTS)[2] for stripe in range(_native.STRIPES)])
        self._tables[table].load(ids, np.ascontiguousarray(rows, np.float32), np.repeat(state, len(ids), axis=0))

    def read_table(self, table: str) -> tuple[Ids, Floats]:
        """All ids and rows of a table."""
        pieces = [self._tables[table].collect(stripe, _ALL_SLOTS)[:2] for stripe in range(_native.STRIPES)]
        return np.concatenate([ids for ids, _ in pieces]), np.concatenate([values for _, values in pieces])
