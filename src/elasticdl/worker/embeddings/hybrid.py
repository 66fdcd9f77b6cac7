"""Embeddings on ps, dense layers in the workers: rows are pulled ahead, gradients pushed by logical rank."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import nn

from elasticdl.checkpoint import manifest
from elasticdl.checkpoint.export import ExportedProgram
from elasticdl.checkpoint.manifest import FileEntry
from elasticdl.checkpoint.store import WriteExtraFiles
from elasticdl.model.adapted import AdaptedModule, AdaptedOptimizer
from elasticdl.model.embeddings.attach import TorchEmbeddingLayers
from elasticdl.model.embeddings.interface import EmbeddingLayers
from elasticdl.model.embeddings.restore import read_table_rows
from elasticdl.model.embeddings.row_sources import ReadOnlyRows, TrainingRows
from elasticdl.ps.client.local_tables import LocalTables
from elasticdl.ps.client.lookups import EmbeddingLookups, TableClient
from elasticdl.ps.client.ps_client import PsClient
from elasticdl.ps.client.table_reader import TableReader
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.snapshots import exported_tables, snapshot_files
from elasticdl.ps.snapshots.coordinator import SnapshotCoordinator, choose_base, find_base
from elasticdl.ps.wire.keys import find_keys
from elasticdl.ps.wire.messages import Floats, Ids
from elasticdl.spec import JobSpec
from elasticdl.storage.paths import AnyPath
from elasticdl.worker.embeddings.tables import EmbeddingTables, NoTables
from elasticdl.worker.master_connection import MasterConnection

MAX_MODEL_BYTES = 1 << 30  # of all tables together in a model; an export of more has them beside it

_log = logging.getLogger(__name__)


class TableStore(Protocol):
    """Keeps tables: the ps of a job, or this process."""

    def open_client(self) -> TableClient:
        """A client for one thread."""

    def begin_snapshot(self, step: int, directory: AnyPath) -> WriteExtraFiles:
        """See `EmbeddingTables.begin_snapshot`."""

    def read_rows(self, table: str) -> tuple[Ids, Floats]:
        """All ids and rows of a table, for an export."""

    def export_writer(self, checkpoint: AnyPath | None = None) -> Callable[[Path], ExportedProgram] | None:
        """See `EmbeddingTables.export_writer`."""


def _is_never_due(step: int) -> bool:
    return False


class HybridEmbeddingTables:
    """Embedding rows in tables, dense layers in the workers.

    A push names the logical rank as its sender and the step as its number, so a worker that computes it again changes
    nothing.
    """

    has_rows = True

    def __init__(
        self,
        layers: EmbeddingLayers,
        store: TableStore,
        client: TableClient,
        depth: int,
        is_snapshot_due: Callable[[int], bool] = _is_never_due,
    ) -> None:
        """`is_snapshot_due(step)`: whether the rows must at some moment hold exactly the updates up to `step`."""
        self.layers = layers
        self.looks_ahead = depth > 0
        self._store = store
        self.client = client
        self.lookups = EmbeddingLookups(self.client, depth)
        self._is_snapshot_due = is_snapshot_due
        self._source = TrainingRows(self.lookups)
        self._lookahead = layers.lookahead()

    @classmethod
    def open(
        cls,
        layers: EmbeddingLayers,
        store: TableStore,
        depth: int,
        is_snapshot_due: Callable[[int], bool] = _is_never_due,
    ) -> HybridEmbeddingTables:
        """The tables of these layers, declared in `store`; the layers look their rows up there."""
        tables = cls(layers, store, store.open_client(), depth, is_snapshot_due)
        tables.client.declare(layers.table_specs)
        layers.attach_source(tables._source)
        return tables

    def put_initial_rows(self) -> None:
        self.layers.put_initial_rows(self.client)

    def begin_batch(self, features: Any) -> None:
        if not self._source.creates:  # a worker that trains has a state: the initial values are not needed any more
            self._source.creates = True
            self.layers.drop_initial_rows()
        self.lookups.begin_batch()
        self._lookahead.begin_batch(features)

    def look_ahead(self, features: Any) -> None:
        self.lookups.prefetch(self._lookahead.predict_ids(features))

    def push_gradients(self, logical_rank: int, step: int, rate: float, loss: torch.Tensor) -> None:
        if math.isfinite(float(loss.detach())):  # otherwise all workers learn it from the reduction, and end
            self.lookups.push_gradients(sender=logical_rank, number=step + 1, rate=rate, step=step + 1)

    def before_reduce(self, step: int) -> None:
        """Wait until the pushes of this worker are in the rows.

        Once others have done the step, its ranks are not computed again: pushes that were not delivered when this
        worker was killed would be lost.
        """
        self.lookups.wait_for_pushes()

    def after_reduce(self, step: int) -> bool:
        # Pushes were held back for the snapshot after the step before, which has been made by now. This depends on the
        # step alone: a worker that has just joined holds nothing back, but must meet the others all the same.
        is_late = self._is_snapshot_due(step)
        if is_late:
            self.flush()
        if self._is_snapshot_due(step + 1):
            self.lookups.hold_pushes()
        return is_late

    def discard_step(self) -> None:
        self.lookups.discard_unsent()

    def flush(self) -> None:
        self.lookups.release_pushes()
        self.lookups.wait_for_pushes()

    def attach_model(self, model: nn.Module) -> None:
        client = self._store.open_client()
        client.declare(self.layers.table_specs)
        self.layers.for_model(model).attach_source(ReadOnlyRows(client))

    @contextmanager
    def full_model(self) -> Iterator[None]:
        with self.layers.full_model(self.client, self._store.read_rows):
            yield

    def begin_snapshot(self, step: int, directory: AnyPath) -> WriteExtraFiles:
        return self._store.begin_snapshot(step, directory)

    def export_writer(self, checkpoint: AnyPath | None = None) -> Callable[[Path], ExportedProgram] | None:
        return self._store.export_writer(checkpoint)


class PsTableStore:
    """The ps of a job as a store of tables. All its clients learn of every change of the fleet."""

    def __init__(self, spec: JobSpec, master: MasterConnection) -> None:
        self._spec = spec
        self._master = master
        self._lock = threading.Lock()
        self._clients: list[PsClient] = []
        self._coordinators: list[SnapshotCoordinator] = []  # of the snapshots under way

    @classmethod
    def open(cls, spec: JobSpec, master: MasterConnection) -> Self:
        """A store that listens to changes of the fleet."""
        store = cls(spec, master)
        master.add_fleet_listener(store._update_fleet)
        return store

    def open_client(self) -> PsClient:
        """A client that knows the newest fleet; waits until there is one."""
        spec, master = self._spec, self._master
        master.wait_for_fleet(spec.timing.orphan_timeout_s)
        with self._lock:
            fleet = master.wait_for_fleet(0.0)
            keys = find_keys(master.directory.root)
            client = PsClient(fleet, master.token, spec.timing.ps_timeout_s, transport=spec.ps.wire_dtype, keys=keys)
            client.open()
            self._clients.append(client)
            return client

    def begin_snapshot(self, step: int, directory: AnyPath) -> WriteExtraFiles:
        # Each snapshot has connections of its own: the next may begin in this thread while another writes this one.
        spec, master = self._spec, self._master
        keys = find_keys(master.directory.root)
        coordinator = SnapshotCoordinator(
            lambda: master.wait_for_fleet(0.0), master.token, spec.timing.ps_timeout_s, keys
        ).open()
        with self._lock:
            is_another_under_way = bool(self._coordinators)
            self._coordinators.append(coordinator)
        try:
            base = choose_base(directory, spec.checkpoint.keep_last, is_another_under_way=is_another_under_way)
            begun = coordinator.begin(step, base)
        except BaseException:
            self._close_coordinator(coordinator)
            raise

        def finish(target: Path) -> dict[str, FileEntry]:
            try:
                return coordinator.finish(
                    begun, target, find_base(directory, begun), directory / manifest.checkpoint_name(step)
                )
            finally:
                self._close_coordinator(coordinator)

        return finish

    def read_rows(self, table: str) -> tuple[Ids, Floats]:
        """All rows of a table: from the checkpoint that was written at the end, or as the ps have them."""
        if self._spec.has_durable_checkpoints:
            return read_table_rows(self._fetch_newest_checkpoint(), table)
        with self._open_reader() as reader:
            return reader.read_table(table)

    @contextmanager
    def _open_reader(self) -> Iterator[TableReader]:
        fleet, keys = self._master.wait_for_fleet(0.0), find_keys(self._master.directory.root)
        with TableReader(fleet, self._master.token, self._spec.timing.ps_timeout_s, keys) as reader:
            yield reader

    def export_writer(self, checkpoint: AnyPath | None = None) -> Callable[[Path], ExportedProgram] | None:
        if not self._spec.has_durable_checkpoints:
            return None
        last = snapshot_files.fetch_snapshot(checkpoint) if checkpoint is not None else self._fetch_newest_checkpoint()
        size = sum(rows * 4 * table.columns for table, rows in snapshot_files.count_rows_by_table(last).items())
        if size <= MAX_MODEL_BYTES:
            return None
        reason = (
            f"its tables are {size / 1e9:.1f} GB and lie in files of their own: {exported_tables.INDEX_FILE} names them"
        )
        return lambda target: ExportedProgram(
            tuple(exported_tables.export_tables(last, target, self._spec.plan.seed)), reason
        )

    def _fetch_newest_checkpoint(self) -> Path:
        newest = _find_newest_checkpoint(self._master.directory.checkpoints(self._spec))
        assert newest is not None, "an export follows a checkpoint"
        return snapshot_files.fetch_snapshot(newest)

    def _close_coordinator(self, coordinator: SnapshotCoordinator) -> None:
        with self._lock:
            self._coordinators.remove(coordinator)
            coordinator.close()

    def _update_fleet(self, fleet: FleetView) -> None:
        with self._lock:
            for client in self._clients:
                client.update_fleet(fleet)
            for coordinator in self._coordinators:
                coordinator.update_fleet(fleet)


class LocalTableStore:
    """The tables of this process as a store: for training alone."""

    def __init__(self, tables: LocalTables) -> None:
        self._tables = tables
        self.read_rows = tables.read_table

    def open_client(self) -> LocalTables:
        return self._tables

    def begin_snapshot(self, step: int, directory: AnyPath) -> WriteExtraFiles:
        return lambda target: {}

    def export_writer(self, checkpoint: AnyPath | None = None) -> None:
        return None


def _find_newest_checkpoint(directory: AnyPath) -> AnyPath | None:
    return next(iter(manifest.list_checkpoints(directory)), None)


def open_hybrid_tables(
    spec: JobSpec,
    master: MasterConnection,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    is_snapshot_due: Callable[[int], bool],
) -> EmbeddingTables:
    """The tables of a model in a job with ps; none, with a warning, if no layer of the model has one."""
    layers = attach_layers(spec, model, optimizer)
    if not layers.table_specs:
        _log.warning(
            "no layer of the model is on the ps, which have nothing to do: use the Embedding of elasticdl.torch "
            "or elasticdl.keras, --embedding_on_ps=all, or --distribution_strategy=AllreduceStrategy"
        )
        return NoTables()
    _log.info("on ps: %s", ", ".join(f"{table.name} by {table.optimizer.rule}" for table in layers.table_specs))
    return HybridEmbeddingTables.open(layers, PsTableStore.open(spec, master), spec.ps.pipeline_depth, is_snapshot_due)


def attach_layers(spec: JobSpec, model: nn.Module, optimizer: torch.optim.Optimizer) -> EmbeddingLayers:
    """The layers of the model that have tables, which the rule of this optimizer updates."""
    if isinstance(model, AdaptedModule):
        assert isinstance(optimizer, AdaptedOptimizer)
        return model.attach_tables(optimizer)
    layers = TorchEmbeddingLayers(model, spec.ps.embeddings, spec.ps.embedding_bytes)
    for note in layers.notes:
        _log.info("%s", note)
    layers.use_optimizer(optimizer)
    return layers


def open_hybrid_tables_locally(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> EmbeddingTables:
    """The tables of a model that this process trains alone, in its memory."""
    layers = TorchEmbeddingLayers(model, "none", 0)
    layers.use_optimizer(optimizer)
    return HybridEmbeddingTables.open(layers, LocalTableStore(LocalTables(seed)), 0)
