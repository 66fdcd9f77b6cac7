"""Where a layer's rows come from."""

from __future__ import annotations

from typing import Protocol

from elasticdl.errors import ModelError
from elasticdl.ps.lookups import Found, Lookups, Tables, flat
from elasticdl.ps.plan import Route
from elasticdl.ps.row_files import RowFiles
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.wire import Floats, Ids
from elasticdl.spec import PsId


class Source(Protocol):
    def find(self, table: str, ids: Ids) -> Found: ...

    def give(self, table: str, found: Found, gradients: Floats) -> None:
        """The gradient of `found.rows`."""


class Trained:
    """Rows in training: made where they are new, once `creates`; gradients go to the next push."""

    def __init__(self, lookups: Lookups) -> None:
        self.lookups = lookups
        self.creates = False

    def find(self, table: str, ids: Ids) -> Found:
        return self.lookups.find(table, ids, create=self.creates)

    def give(self, table: str, found: Found, gradients: Floats) -> None:
        self.lookups.give(table, found, gradients)


class Looked:
    """Rows as they are, for evaluation: an id without one has its initial values, and still no row afterwards."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def find(self, table: str, ids: Ids) -> Found:
        plans = {table: self._tables.plan(flat(table, ids))}
        return Found(plans[table], self._tables.pulled(plans, self._tables.begin_pull(plans, create=False))[table])

    def give(self, table: str, found: Found, gradients: Floats) -> None:
        raise ModelError(
            f"table {table}: its rows are trained in the steps of a job only. "
            "Received: a backward pass outside of one; use elasticdl.torch.join, which also runs alone"
        )


class Filed:
    """Rows in the files of an export, mapped rather than read."""

    def __init__(self, files: RowFiles) -> None:
        self._files = files
        self._route = Route.of(SlotMap.first([PsId("ps-0")]))

    def find(self, table: str, ids: Ids) -> Found:
        plan = self._route.plan(flat(table, ids))
        return Found(plan, self._files.lookup(table, plan.ids))

    def give(self, table: str, found: Found, gradients: Floats) -> None:
        raise ModelError(f"table {table}: its rows are read from an export. Received: a backward pass")
