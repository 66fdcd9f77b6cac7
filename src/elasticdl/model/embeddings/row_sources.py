"""Sources of the rows of an embedding layer: tables in training, tables as they are, or the files of an export."""

from __future__ import annotations

from typing import Protocol

from elasticdl.errors import ModelError
from elasticdl.ps.client.lookup_plan import RoutingTable
from elasticdl.ps.client.lookups import EmbeddingLookups, LookupResult, TableClient, flatten_ids
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.snapshots.exported_tables import ExportedTables
from elasticdl.ps.wire.messages import Floats, Ids
from elasticdl.spec import PsId


class RowSource(Protocol):
    """Looks rows up for an embedding layer, and takes their gradients."""

    def find(self, table: str, ids: Ids) -> LookupResult: ...

    def give_gradients(self, table: str, lookup: LookupResult, gradients: Floats) -> None:
        """Take the gradients of the rows of a lookup."""


class TrainingRows:
    """Rows in training. Once `creates` is set, new ids get a row; gradients go to the next push."""

    def __init__(self, lookups: EmbeddingLookups) -> None:
        self.lookups = lookups
        self.creates = False

    def find(self, table: str, ids: Ids) -> LookupResult:
        return self.lookups.lookup(table, ids, create=self.creates)

    def give_gradients(self, table: str, lookup: LookupResult, gradients: Floats) -> None:
        self.lookups.add_gradients(table, lookup, gradients)


class ReadOnlyRows:
    """Rows as they are, for evaluation: an id without a row has initial values, and gets no row."""

    def __init__(self, tables: TableClient) -> None:
        self._tables = tables

    def find(self, table: str, ids: Ids) -> LookupResult:
        plans = {table: self._tables.plan(flatten_ids(table, ids))}
        return LookupResult(
            plans[table], self._tables.finish_pull(plans, self._tables.begin_pull(plans, create=False))[table]
        )

    def give_gradients(self, table: str, lookup: LookupResult, gradients: Floats) -> None:
        raise ModelError(
            f"table {table}: its rows are trained in the steps of a job only. "
            "Received: a backward pass outside of one; use elasticdl.torch.join, which also runs alone"
        )


class FileRows:
    """Rows in the files of an export, which are mapped into memory."""

    def __init__(self, files: ExportedTables) -> None:
        self._files = files
        self._route = RoutingTable.from_slot_map(SlotMap.initial([PsId("ps-0")]))

    def find(self, table: str, ids: Ids) -> LookupResult:
        plan = self._route.plan(flatten_ids(table, ids))
        return LookupResult(plan, self._files.lookup(table, plan.ids))

    def give_gradients(self, table: str, lookup: LookupResult, gradients: Floats) -> None:
        raise ModelError(f"table {table}: its rows are read from an export. Received: a backward pass")
