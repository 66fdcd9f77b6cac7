"""The interface between a worker's steps and its embedding tables; a job without ps has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.checkpoint.export import ExportedProgram
from elasticdl.checkpoint.store import ROWS_PREFIX, WriteExtraFiles
from elasticdl.errors import ModelError
from elasticdl.spec import JobSpec, Strategy
from elasticdl.storage.paths import AnyPath
from elasticdl.worker.master_connection import MasterConnection

ROWS_INDEX_FILE = "rows.json"  # of an export with tables in files of their own, as in ps/snapshots/exported_tables.py


class EmbeddingTables:
    """A model that lies in the workers, all of it."""

    has_rows = False
    looks_ahead = False

    def put_initial_rows(self) -> None:
        """The state of the job is a new one: rows, too, are what the model was built with."""

    def begin_batch(self, features: Any) -> None:
        """A batch begins."""

    def look_ahead(self, features: Any) -> None:
        """Find what the next batch will ask for, meanwhile."""

    def push_gradients(self, logical_rank: int, step: int, rate: float, loss: torch.Tensor) -> None:
        """A batch is computed."""

    def before_reduce(self, step: int) -> None:
        """All ranks of this worker are computed."""

    def after_reduce(self, step: int) -> bool:
        """All workers have left `before_reduce`. True: they must all have left here before the step counts."""
        return False

    def discard_step(self) -> None:
        """The step breaks off, and will be computed again."""

    def begin_snapshot(self, step: int, directory: AnyPath) -> WriteExtraFiles:
        """Copy the rows as they are now; what is returned writes them into a checkpoint of `directory`."""
        return lambda place: {}

    def flush(self) -> None:
        """Until everything pushed is in the rows."""

    def attach_model(self, model: nn.Module) -> None:
        """Let a second model, for evaluation, look rows up as they are."""

    @contextmanager
    def full_model(self) -> Iterator[None]:
        """The model with all its rows in it, for an export."""
        yield

    def export_writer(self, checkpoint: AnyPath | None = None) -> Callable[[Path], ExportedProgram] | None:
        """Writes the tables into an export, where they are too large for the model to hold; else None.

        They are those of this checkpoint, by default the newest.
        """
        return None


def open_tables(
    spec: JobSpec,
    link: MasterConnection,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    is_cut: Callable[[int], bool],
) -> EmbeddingTables:
    """The tables of a job's model. Layers that have one are attached to it, and large plain ones moved there."""
    if spec.strategy is not Strategy.PS:
        if has_tables(model):
            raise ModelError(
                f"{spec.name}: expected ps for the model's embedding layers. Received: a job without any; "
                "use --num_ps_pods=1 or more"
            )
        return EmbeddingTables()
    from elasticdl.worker.embeddings import hybrid  # needs the native core

    return hybrid.open_hybrid_tables(spec, link, model, optimizer, is_cut)


def open_local_tables(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> EmbeddingTables:
    """The tables of a model that is trained in this process alone."""
    if not has_tables(model):
        return EmbeddingTables()
    from elasticdl.worker.embeddings import hybrid  # needs the native core

    return hybrid.open_hybrid_tables_locally(model, optimizer, seed)


def restore_rows(model: nn.Module, image: CapturedState, place: Path) -> CapturedState:
    """Let layers have the rows of an export, or of a checkpoint, in the directory `place`.

    Returns the image with the weights of plain layers that were on ps.
    """
    if not has_tables(model) and not any((place / name).exists() for name in (ROWS_PREFIX, ROWS_INDEX_FILE)):
        return image
    foreign: Any = getattr(model, "hold_rows", None)  # a model of another framework knows itself what it has
    if foreign is not None:
        held: CapturedState = foreign(image, place)
        return held
    from elasticdl.model.embeddings import restore  # needs the native core

    return restore.restore_rows(model, image, place)


def has_tables(model: nn.Module) -> bool:
    return any(getattr(module, "has_table", False) for module in model.modules())
