"""Embeddings on ps, dense layers in the workers: rows found ahead, gradients pushed rank by rank."""

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
from elasticdl.checkpoint.export import Program
from elasticdl.checkpoint.manifest import FileEntry
from elasticdl.checkpoint.store import Beside
from elasticdl.embedding.attached import Attached
from elasticdl.embedding.holding import rows_of
from elasticdl.embedding.source import Looked, Source, Trained
from elasticdl.ps import cuts, row_files
from elasticdl.ps.client import Client
from elasticdl.ps.cutting import Cutter, choose_base, find_base
from elasticdl.ps.fleet import Fleet
from elasticdl.ps.gathering import Gathering
from elasticdl.ps.keys import keys_of
from elasticdl.ps.local import Local
from elasticdl.ps.lookups import Lookups, Tables
from elasticdl.ps.optimizer import Optimizer
from elasticdl.ps.table import TableSpec
from elasticdl.ps.wire import Floats, Ids
from elasticdl.spec import JobSpec
from elasticdl.storage.place import Place
from elasticdl.worker.link import Link
from elasticdl.worker.tables import NoTables

MOST_BYTES = 1 << 30  # of all tables together in a model; an export of more has them beside it

_log = logging.getLogger(__name__)


class Ps(Protocol):
    """Where tables lie."""

    def open(self) -> Tables:
        """A client for one thread."""

    def begin_cut(self, step: int, directory: Place) -> Beside:
        """As `NoTables.begin_cut`."""

    def rows(self, table: str) -> tuple[Ids, Floats]:
        """All ids and rows of a table, for an export."""

    def shards(self, checkpoint: Place | None = None) -> Callable[[Path], Program] | None:
        """As `NoTables.shards`."""


class Foreseeing(Protocol):
    """Knows from features what a batch will ask for."""

    def begin(self, features: Any) -> None: ...
    def ids(self, features: Any) -> dict[str, list[Ids]]: ...


class AttachedLayers(Protocol):
    """The layers of a model that have tables, in whichever framework."""

    @property
    def specs(self) -> list[TableSpec]: ...
    @property
    def rule(self) -> Optimizer: ...
    def foresight(self) -> Foreseeing: ...
    def like(self, model: nn.Module) -> AttachedLayers: ...
    def attach(self, source: Source) -> None: ...
    def put(self, tables: Tables) -> None: ...
    def forget(self) -> None: ...
    def whole(self, tables: Tables, rows: Callable[[str], tuple[Ids, Floats]]) -> AbstractContextManager[None]: ...


class HybridTables(NoTables):
    """Rows in tables, dense layers in the workers.

    A push has the logical rank for a sender and the step for a number, so whoever computes it again changes nothing.
    """

    has_rows = True

    def __init__(
        self,
        attached: AttachedLayers,
        ps: Ps,
        depth: int,
        is_cut: Callable[[int], bool] = lambda step: False,
    ) -> None:
        """`is_cut(step)`: whether the rows are to hold exactly the updates of so many steps at some moment."""
        self.attached = attached
        self._ps = ps
        self.client = client = ps.open()
        self.lookups = Lookups(client, depth)
        self.looks_ahead = depth > 0
        self._is_cut = is_cut
        self._source = Trained(self.lookups)
        self._foresight = attached.foresight()
        client.declare(attached.specs)
        attached.attach(self._source)

    def first_values(self) -> None:
        self.attached.put(self.client)

    def begin(self, features: Any) -> None:
        if not self._source.creates:  # whoever trains has a state: nobody will ask for the first values any more
            self._source.creates = True
            self.attached.forget()
        self.lookups.begin()
        self._foresight.begin(features)

    def ahead(self, features: Any) -> None:
        self.lookups.ahead(self._foresight.ids(features))

    def push(self, logical_rank: int, step: int, rate: float, loss: torch.Tensor) -> None:
        if math.isfinite(float(loss.detach())):  # else all workers will know after the reduction, and end
            self.lookups.push(sender=logical_rank, number=step + 1, rate=rate, step=step + 1)

    def before_reduce(self, step: int) -> None:
        """Until the pushes of this worker are in the rows: once others have done the step nobody computes its ranks
        again, and what it had not delivered when it was killed would be lost."""
        self.lookups.settle()

    def after_reduce(self, step: int) -> bool:
        # Pushes were held back for the cut after the step before, which has been made by now. This depends on the step
        # alone: whoever has just joined holds nothing, but must meet the others all the same.
        is_late = self._is_cut(step)
        if is_late:
            self.settle()
        if self._is_cut(step + 1):
            self.lookups.hold()
        return is_late

    def abandon(self) -> None:
        self.lookups.abandon()

    def settle(self) -> None:
        self.lookups.release()
        self.lookups.settle()

    def attach(self, model: nn.Module) -> None:
        other = self.attached.like(model)
        client = self._ps.open()
        client.declare(self.attached.specs)
        other.attach(Looked(client))

    @contextmanager
    def whole(self) -> Iterator[None]:
        with self.attached.whole(self.client, self._ps.rows):
            yield

    def begin_cut(self, step: int, directory: Place) -> Beside:
        return self._ps.begin_cut(step, directory)

    def shards(self, checkpoint: Place | None = None) -> Callable[[Path], Program] | None:
        return self._ps.shards(checkpoint)


class Clients:
    """A worker's ways to the ps. All clients hear of every new fleet."""

    def __init__(self, spec: JobSpec, link: Link) -> None:
        self._spec = spec
        self._link = link
        self._lock = threading.Lock()
        self._clients: list[Client] = []
        self._cutters: list[Cutter] = []  # under way
        link.on_fleet = self._told

    def open(self) -> Client:
        """One that knows the newest fleet, as soon as there is one."""
        spec, link = self._spec, self._link
        link.wait_fleet(spec.timing.orphan_s)
        with self._lock:
            fleet = link.wait_fleet(0.0)
            keys = keys_of(link.directory.root)
            client = Client(fleet, link.token, spec.timing.reply_s, transport=spec.ps.transport, keys=keys)
            self._clients.append(client)
            return client

    def begin_cut(self, step: int, directory: Place) -> Beside:
        # Each cut has lines of its own: the next may begin in this thread while another writes this one.
        spec, link = self._spec, self._link
        keys = keys_of(link.directory.root)
        cutter = Cutter(lambda: link.wait_fleet(0.0), link.token, spec.timing.reply_s, keys)
        with self._lock:
            is_another_under_way = bool(self._cutters)
            self._cutters.append(cutter)
        try:
            base = choose_base(directory, spec.checkpoint.keep, is_another_under_way=is_another_under_way)
            begun = cutter.begin(step, base)
        except BaseException:
            self._done_with(cutter)
            raise

        def finish(place: Path) -> dict[str, FileEntry]:
            try:
                return cutter.finish(begun, place, find_base(directory, begun), directory / manifest.name_of(step))
            finally:
                self._done_with(cutter)

        return finish

    def rows(self, table: str) -> tuple[Ids, Floats]:
        """All rows of a table, in the checkpoint that was written at the end, or as the ps have them."""
        if self._spec.keeps_checkpoints:
            return rows_of(self._last(), table)
        with self._gathering() as gathering:
            return gathering.rows(table)

    @contextmanager
    def _gathering(self) -> Iterator[Gathering]:
        fleet, keys = self._link.wait_fleet(0.0), keys_of(self._link.directory.root)
        with closing(Gathering(fleet, self._link.token, self._spec.timing.reply_s, keys)) as gathering:
            yield gathering

    def shards(self, checkpoint: Place | None = None) -> Callable[[Path], Program] | None:
        if not self._spec.keeps_checkpoints:
            return None
        last = cuts.fetch(checkpoint) if checkpoint is not None else self._last()
        size = sum(rows * 4 * table.columns for table, rows in cuts.tables(last).items())
        if size <= MOST_BYTES:
            return None
        why = f"its tables are {size / 1e9:.1f} GB and lie in files of their own: {row_files.INDEX} names them"
        return lambda place: Program(tuple(row_files.export(last, place, self._spec.plan.seed)), why)

    def _last(self) -> Path:
        newest = _newest(self._link.directory.checkpoints(self._spec))
        assert newest is not None, "an export follows a checkpoint"
        return cuts.fetch(newest)

    def _done_with(self, cutter: Cutter) -> None:
        with self._lock:
            self._cutters.remove(cutter)
            cutter.close()

    def _told(self, fleet: Fleet) -> None:
        with self._lock:
            for client in self._clients:
                client.use(fleet)
            for cutter in self._cutters:
                cutter.use(fleet)


class Here:
    """Tables of this process."""

    def __init__(self, tables: Local) -> None:
        self._tables = tables
        self.rows = tables.rows

    def open(self) -> Local:
        return self._tables

    def begin_cut(self, step: int, directory: Place) -> Beside:
        return lambda place: {}

    def shards(self, checkpoint: Place | None = None) -> None:
        return None


def _newest(directory: Place) -> Place | None:
    return next(iter(manifest.checkpoints(directory)), None)


def open_tables(
    spec: JobSpec, link: Link, model: nn.Module, optimizer: torch.optim.Optimizer, is_cut: Callable[[int], bool]
) -> NoTables:
    attached = attached_of(spec, model, optimizer)
    if not attached.specs:
        _log.warning(
            "no layer of the model is on the ps, which have nothing to do: use the Embedding of elasticdl.torch "
            "or elasticdl.keras, --embedding_on_ps=all, or --distribution_strategy=AllreduceStrategy"
        )
        return NoTables()
    _log.info("on ps: %s", ", ".join(f"{table.name} by {table.optimizer.rule}" for table in attached.specs))
    return HybridTables(attached, Clients(spec, link), spec.ps.depth, is_cut)


def attached_of(spec: JobSpec, model: nn.Module, optimizer: torch.optim.Optimizer) -> AttachedLayers:
    """The layers of the model that have tables, which this optimizer's rule updates."""
    foreign: Any = getattr(model, "attached", None)  # a model of another framework knows itself what it has
    if foreign is not None:
        known: AttachedLayers = foreign(optimizer)
        return known
    attached = Attached(model, spec.ps.embeddings, spec.ps.embedding_bytes)
    for note in attached.notes:
        _log.info("%s", note)
    attached.leave(optimizer)
    return attached


def local_tables(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> NoTables:
    attached = Attached(model, "none", 0)
    attached.leave(optimizer)
    return HybridTables(attached, Here(Local(seed)), 0)
