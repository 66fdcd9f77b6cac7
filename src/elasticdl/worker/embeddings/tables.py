"""The embedding tables of a model as the steps of a worker use them; a job without ps has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.checkpoint.export import ExportedProgram
from elasticdl.checkpoint.store import ROWS_PREFIX, WriteExtraFiles
from elasticdl.errors import ModelError
from elasticdl.model.adapted import AdaptedModule, has_tables
from elasticdl.spec import JobSpec, Strategy
from elasticdl.storage.paths import AnyPath
from elasticdl.worker.master_connection import MasterConnection

ROWS_INDEX_FILE = "rows.json"  # of an export with tables in files of their own, as in ps/snapshots/exported_tables.py


class EmbeddingTables(Protocol):
    """The embedding tables of a model during training."""

    @property
    def has_rows(self) -> bool:
        """Whether rows of the model are in tables, and not in the model."""

    @property
    def looks_ahead(self) -> bool:
        """Whether `look_ahead` is to be called before each batch."""

    def put_initial_rows(self) -> None:
        """The state of the job is a new one: its rows are those that the model was built with."""

    def begin_batch(self, features: Any) -> None:
        """A batch begins."""

    def look_ahead(self, features: Any) -> None:
        """Pull the rows of the next batch while this one is computed."""

    def push_gradients(self, logical_rank: int, step: int, rate: float, loss: torch.Tensor) -> None:
        """A batch is computed: push the gradients of its rows."""

    def before_reduce(self, step: int) -> None:
        """All ranks of this worker are computed."""

    def after_reduce(self, step: int) -> bool:
        """All workers have left `before_reduce`. True: they must all have left this call before the step counts."""

    def discard_step(self) -> None:
        """The step is broken off, and will be computed again."""

    def begin_snapshot(self, step: int, directory: AnyPath) -> WriteExtraFiles:
        """Copy the rows as they are now. The returned function writes them into a checkpoint of `directory`."""

    def flush(self) -> None:
        """Wait until everything that was pushed is in the rows."""

    def attach_model(self, model: nn.Module) -> None:
        """Let a second model, for evaluation, look rows up as they are."""

    def full_model(self) -> AbstractContextManager[None]:
        """While it is open, the model holds all its rows, for an export."""

    def export_writer(self, checkpoint: AnyPath | None = None) -> Callable[[Path], ExportedProgram] | None:
        """Writes the tables of `checkpoint` into an export beside the model; None if the model can hold them.

        By default they are those of the newest checkpoint.
        """


class NoTables:
    """The tables of a model that has all its parameters in the workers: nothing to do."""

    has_rows = False
    looks_ahead = False

    def put_initial_rows(self) -> None: ...

    def begin_batch(self, features: Any) -> None: ...

    def look_ahead(self, features: Any) -> None: ...

    def push_gradients(self, logical_rank: int, step: int, rate: float, loss: torch.Tensor) -> None: ...

    def before_reduce(self, step: int) -> None: ...

    def after_reduce(self, step: int) -> bool:
        return False

    def discard_step(self) -> None: ...

    def begin_snapshot(self, step: int, directory: AnyPath) -> WriteExtraFiles:
        return lambda place: {}

    def flush(self) -> None: ...

    def attach_model(self, model: nn.Module) -> None: ...

    @contextmanager
    def full_model(self) -> Iterator[None]:
        yield

    def export_writer(self, checkpoint: AnyPath | None = None) -> Callable[[Path], ExportedProgram] | None:
        return None


def open_tables(
    spec: JobSpec,
    master: MasterConnection,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    is_snapshot_due: Callable[[int], bool],
) -> EmbeddingTables:
    """The tables of a job's model. Attaches the layers that have one, and moves large plain layers to tables."""
    if spec.strategy is not Strategy.PS:
        if has_tables(model):
            raise ModelError(
                f"{spec.name}: expected ps for the model's embedding layers. Received: a job without any; "
                "use --num_ps_pods=1 or more"
            )
        return NoTables()
    from elasticdl.worker.embeddings import hybrid  # needs the native core

    return hybrid.open_hybrid_tables(spec, master, model, optimizer, is_snapshot_due)


def open_local_tables(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> EmbeddingTables:
    """The tables of a model that this process trains alone."""
    if not has_tables(model):
        return NoTables()
    from elasticdl.worker.embeddings import hybrid  # needs the native core

    return hybrid.open_hybrid_tables_locally(model, optimizer, seed)


def restore_rows(model: nn.Module, captured: CapturedState, directory: Path) -> CapturedState:
    """Let layers hold the rows of the export or checkpoint in `directory`.

    Returns the captured state with the weights of plain layers that were on ps.
    """
    if not has_tables(model) and not any((directory / name).exists() for name in (ROWS_PREFIX, ROWS_INDEX_FILE)):
        return captured
    if isinstance(model, AdaptedModule):
        return model.restore_rows(captured, directory)
    from elasticdl.model.embeddings import restore  # needs the native core

    return restore.restore_rows(model, captured, directory)
