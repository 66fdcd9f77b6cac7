"""Embeddings on ps, dense layers in the workers: rows are pulled ahead, gradients pushed by logical rank."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from elasticdl.checkpoint import manifest
from elasticdl.checkpoint.export import ExportedProgram
from elasticdl.checkpoint.manifest import FileEntry
from elasticdl.checkpoint.store import WriteExtraFiles
from elasticdl.model.embeddings.attach import TorchEmbeddingLayers
from elasticdl.model.embeddings.restore import read_table_rows
from elasticdl.model.embeddings.row_sources import ReadOnlyRows, RowSource, TrainingRows
from elasticdl.ps.client.local_tables import LocalTables
from elasticdl.ps.client.lookups import EmbeddingLookups, TableClient
from elasticdl.ps.client.ps_client import PsClient
from elasticdl.ps.client.table_reader import TableReader
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.snapshots import exported_tables, snapshot_files
from elasticdl.ps.snapshots.coordinator import SnapshotCoordinator, choose_base, find_base
from elasticdl.ps.tables.optimizer import Optimizer
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire.keys import find_keys
from elasticdl.ps.wire.messages import Floats, Ids
from elasticdl.spec import JobSpec
from elasticdl.storage.paths import AnyPath
from elasticdl.worker.embeddings.tables import EmbeddingTables
from elasticdl.worker.master_connection import MasterConnection

MAX_MODEL_BYTES = 1 << 30  # of all tables together in a model; an export of more has them beside it

_log = logging.getLogger(__name__)


class TableStore(Protocol):
    """Where tables lie."""

    def open_client(self) -> TableClient:
        """A client for one thread."""

    def begin_snapshot(self, step: int, directory: AnyPath) -> WriteExtraFiles:
        """As `NoTables.begin_cut`."""

    def read_rows(self, table: str) -> tuple[Ids, Floats]:
        """All ids and rows of a table, for an export."""

    def export_writer(self, checkpoint: AnyPath | None = None) -> Callable[[Path], ExportedProgram] | None:
        """As `NoTables.shards`."""


class IdLookahead(Protocol):
    """Knows from features what a batch will ask for."""

    def begin_batch(self, features: Any) -> None: ...
    def predict_ids(self, features: Any) -> dict[str, list[Ids]]: ...


class EmbeddingLayers(Protocol):
    """The layers of a model that have tables, in whichever framework."""

    @property
    def table_specs(self) -> list[TableSpec]: ...
    @property
    def optimizer_rule(self) -> Optimizer: ...
    def lookahead(self) -> IdLookahead: ...
    def for_model(self, model: nn.Module) -> EmbeddingLayers: ...
    def attach_source(self, source: RowSource) -> None: ...
    def put_initial_rows(self, tables: TableClient) -> None: ...
    def drop_initial_rows(self) -> None: ...
    def full_model(
        self, tables: TableClient, rows: Callable[[str], tuple[Ids, Floats]]
    ) -> AbstractContextManager[None]: ...


class HybridEmbeddingTables(EmbeddingTables):
    """Rows in tables, dense layers in the workers.

    A push has the logical rank for a sender and the step for a number, so whoever computes it again changes nothing.
    """

    has_rows = True

    def __init__(
        self,
        layers: EmbeddingLayers,
        ps: TableStore,
        depth: int,
        is_cut: Callable[[int], bool] = lambda step: False,
    ) -> None:
        """`is_cut(step)`: whether the rows are to hold exactly the updates of so many steps at some moment."""
        self.attached = layers
        self._ps = ps
        self.client = client = ps.open_client()
        self.lookups = EmbeddingLookups(client, depth)
        self.looks_ahead = depth > 0
        self._is_cut = is_cut
        self._source = TrainingRows(self.lookups)
        self._foresight = layers.lookahead()
        client.declare(layers.table_specs)
        layers.attach_source(self._source)

    def put_initial_rows(self) -> None:
        self.attached.put_initial_rows(self.client)

    def begin_batch(self, features: Any) -> None:
        if not self._source.creates:  # whoever trains has a state: nobody will ask for the first values any more
            self._source.creates = True
            self.attached.drop_initial_rows()
        self.lookups.begin_batch()
        self._foresight.begin_batch(features)

    def look_ahead(self, features: Any) -> None:
        self.lookups.prefetch(self._foresight.predict_ids(features))

    def push_gradients(self, logical_rank: int, step: int, rate: float, loss: torch.Tensor) -> None:
        if math.isfinite(float(loss.detach())):  # else all workers will know after the reduction, and end
            self.lookups.push_gradients(sender=logical_rank, number=step + 1, rate=rate, step=step + 1)

    def before_reduce(self, step: int) -> None:
        """Until the pushes of this worker are in the rows: once others have done the step nobody computes its ranks
        again, and what it had not delivered when it was killed would be lost."""
        self.lookups.wait_for_pushes()

    def after_reduce(self, step: int) -> bool:
        # Pushes were held back for the cut after the step before, which has been made by now. This depends on the step
        # alone: whoever has just joined holds nothing, but must meet the others all the same.
        is_late = self._is_cut(step)
        if is_late:
            self.flush()
        if self._is_cut(step + 1):
            self.lookups.hold_pushes()
        return is_late

    def discard_step(self) -> None:
        self.lookups.discard_unsent()

    def flush(self) -> None:
        self.lookups.release_pushes()
        self.lookups.wait_for_pushes()

    def attach_model(self, model: nn.Module) -> None:
        other = self.attached.for_model(model)
        client = self._ps.open_client()
        client.declare(self.attached.table_specs)
        other.attach_source(ReadOnlyRows(client))

    @contextmanager
    def full_model(self) -> Iterator[None]:
        with self.attached.full_model(self.client, self._ps.read_rows):
            yield

    def begin_snapshot(self, step: int, directory: AnyPath) -> WriteExtraFiles:
        return self._ps.begin_snapshot(step, directory)

    def export_writer(self, checkpoint: AnyPath | None = None) -> Callable[[Path], ExportedProgram] | None:
        return self._ps.export_writer(checkpoint)


class PsTableStore:
    """A worker's ways to the ps. All clients hear of every new fleet."""

    def __init__(self, spec: JobSpec, link: MasterConnection) -> None:
        self._spec = spec
        self._link = link
        self._lock = threading.Lock()
        self._clients: list[PsClient] = []
        self._cutters: list[SnapshotCoordinator] = []  # under way
        link.on_fleet = self._on_fleet

    def open_client(self) -> PsClient:
        """One that knows the newest fleet, as soon as there is one."""
        spec, link = self._spec, self._link
        link.wait_for_fleet(spec.timing.orphan_s)
        with self._lock:
            fleet = link.wait_for_fleet(0.0)
            keys = find_keys(link.directory.root)
            client = PsClient(fleet, link.token, spec.timing.reply_s, transport=spec.ps.transport, keys=keys)
            self._clients.append(client)
            return client

    def begin_snapshot(self, step: int, directory: AnyPath) -> WriteExtraFiles:
        # Each cut has lines of its own: the next may begin in this thread while another writes this one.
        spec, link = self._spec, self._link
        keys = find_keys(link.directory.root)
        cutter = SnapshotCoordinator(lambda: link.wait_for_fleet(0.0), link.token, spec.timing.reply_s, keys)
        with self._lock:
            is_another_under_way = bool(self._cutters)
            self._cutters.append(cutter)
        try:
            base = choose_base(directory, spec.checkpoint.keep, is_another_under_way=is_another_under_way)
            begun = cutter.begin(step, base)
        except BaseException:
            self._close_cutter(cutter)
            raise

        def finish(place: Path) -> dict[str, FileEntry]:
            try:
                return cutter.finish(
                    begun, place, find_base(directory, begun), directory / manifest.checkpoint_name(step)
                )
            finally:
                self._close_cutter(cutter)

        return finish

    def read_rows(self, table: str) -> tuple[Ids, Floats]:
        """All rows of a table, in the checkpoint that was written at the end, or as the ps have them."""
        if self._spec.has_durable_checkpoints:
            return read_table_rows(self._fetch_newest_checkpoint(), table)
        with self._open_gathering() as gathering:
            return gathering.read_table(table)

    @contextmanager
    def _open_gathering(self) -> Iterator[TableReader]:
        fleet, keys = self._link.wait_for_fleet(0.0), find_keys(self._link.directory.root)
        with closing(TableReader(fleet, self._link.token, self._spec.timing.reply_s, keys)) as gathering:
            yield gathering

    def export_writer(self, checkpoint: AnyPath | None = None) -> Callable[[Path], ExportedProgram] | None:
        if not self._spec.has_durable_checkpoints:
            return None
        last = snapshot_files.fetch_snapshot(checkpoint) if checkpoint is not None else self._fetch_newest_checkpoint()
        size = sum(rows * 4 * table.columns for table, rows in snapshot_files.count_rows_by_table(last).items())
        if size <= MAX_MODEL_BYTES:
            return None
        why = (
            f"its tables are {size / 1e9:.1f} GB and lie in files of their own: {exported_tables.INDEX_FILE} names them"
        )
        return lambda place: ExportedProgram(
            tuple(exported_tables.export_tables(last, place, self._spec.plan.seed)), why
        )

    def _fetch_newest_checkpoint(self) -> Path:
        newest = _find_newest_checkpoint(self._link.directory.checkpoints(self._spec))
        assert newest is not None, "an export follows a checkpoint"
        return snapshot_files.fetch_snapshot(newest)

    def _close_cutter(self, cutter: SnapshotCoordinator) -> None:
        with self._lock:
            self._cutters.remove(cutter)
            cutter.close()

    def _on_fleet(self, fleet: FleetView) -> None:
        with self._lock:
            for client in self._clients:
                client.update_fleet(fleet)
            for cutter in self._cutters:
                cutter.update_fleet(fleet)


class LocalTableStore:
    """Tables of this process."""

    def __init__(self, tables: LocalTables) -> None:
        self._tables = tables
        self.read_rows = tables.read_table

    def open_client(self) -> LocalTables:
        return self._tables

    def begin_snapshot(self, step: int, directory: AnyPath) -> WriteExtraFiles:
        return lambda place: {}

    def export_writer(self, checkpoint: AnyPath | None = None) -> None:
        return None


def _find_newest_checkpoint(directory: AnyPath) -> AnyPath | None:
    return next(iter(manifest.list_checkpoints(directory)), None)


def open_hybrid_tables(
    spec: JobSpec,
    link: MasterConnection,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    is_cut: Callable[[int], bool],
) -> EmbeddingTables:
    attached = attach_layers(spec, model, optimizer)
    if not attached.table_specs:
        _log.warning(
            "no layer of the model is on the ps, which have nothing to do: use the Embedding of elasticdl.torch "
            "or elasticdl.keras, --embedding_on_ps=all, or --distribution_strategy=AllreduceStrategy"
        )
        return EmbeddingTables()
    _log.info("on ps: %s", ", ".join(f"{table.name} by {table.optimizer.rule}" for table in attached.table_specs))
    return HybridEmbeddingTables(attached, PsTableStore(spec, link), spec.ps.depth, is_cut)


def attach_layers(spec: JobSpec, model: nn.Module, optimizer: torch.optim.Optimizer) -> EmbeddingLayers:
    """The layers of the model that have tables, which this optimizer's rule updates."""
    foreign: Any = getattr(model, "attached", None)  # a model of another framework knows itself what it has
    if foreign is not None:
        known: EmbeddingLayers = foreign(optimizer)
        return known
    attached = TorchEmbeddingLayers(model, spec.ps.embeddings, spec.ps.embedding_bytes)
    for note in attached.notes:
        _log.info("%s", note)
    attached.use_optimizer(optimizer)
    return attached


def open_hybrid_tables_locally(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> EmbeddingTables:
    attached = TorchEmbeddingLayers(model, "none", 0)
    attached.use_optimizer(optimizer)
    return HybridEmbeddingTables(attached, LocalTableStore(LocalTables(seed)), 0)
