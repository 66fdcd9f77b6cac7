"""Embedding tables as the steps of a worker see them. Those of a job without ps: none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from elasticdl.checkpoint.export import Program
from elasticdl.checkpoint.image import Image
from elasticdl.checkpoint.store import ROWS, Beside
from elasticdl.errors import ModelError
from elasticdl.spec import JobSpec, Strategy
from elasticdl.storage.place import Place
from elasticdl.worker.link import Link

EXPORTED = "rows.json"  # of an export with tables in files of their own, as in ps/row_files.py


class NoTables:
    """A model that lies in the workers, all of it."""

    has_rows = False
    looks_ahead = False

    def first_values(self) -> None:
        """The state of the job is a new one: rows, too, are what the model was built with."""

    def begin(self, features: Any) -> None:
        """A batch begins."""

    def ahead(self, features: Any) -> None:
        """Find what the next batch will ask for, meanwhile."""

    def push(self, logical_rank: int, step: int, rate: float, loss: torch.Tensor) -> None:
        """A batch is computed."""

    def before_reduce(self, step: int) -> None:
        """All ranks of this worker are computed."""

    def after_reduce(self, step: int) -> bool:
        """All workers have left `before_reduce`. True: they must all have left here before the step counts."""
        return False

    def abandon(self) -> None:
        """The step breaks off, and will be computed again."""

    def begin_cut(self, step: int, directory: Place) -> Beside:
        """Copy the rows as they are now; what is returned writes them into a checkpoint of `directory`."""
        return lambda place: {}

    def settle(self) -> None:
        """Until everything pushed is in the rows."""

    def attach(self, model: nn.Module) -> None:
        """Let a second model, for evaluation, look rows up as they are."""

    @contextmanager
    def whole(self) -> Iterator[None]:
        """The model with all its rows in it, for an export."""
        yield

    def shards(self, checkpoint: Place | None = None) -> Callable[[Path], Program] | None:
        """Writes the tables into an export, where they are too large for the model to hold; else None.

        They are those of this checkpoint, by default the newest.
        """
        return None


def open_tables(
    spec: JobSpec, link: Link, model: nn.Module, optimizer: torch.optim.Optimizer, is_cut: Callable[[int], bool]
) -> NoTables:
    """The tables of a job's model. Layers that have one are attached to it, and large plain ones moved there."""
    if spec.strategy is not Strategy.PS:
        if has_tables(model):
            raise ModelError(
                f"{spec.name}: expected ps for the model's embedding layers. Received: a job without any; "
                "use --num_ps_pods=1 or more"
            )
        return NoTables()
    from elasticdl.worker import hybrid  # needs the native core

    return hybrid.open_tables(spec, link, model, optimizer, is_cut)


def local_tables(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> NoTables:
    """The tables of a model that is trained in this process alone."""
    if not has_tables(model):
        return NoTables()
    from elasticdl.worker import hybrid  # needs the native core

    return hybrid.local_tables(model, optimizer, seed)


def hold_rows(model: nn.Module, image: Image, place: Path) -> Image:
    """Let layers have the rows of an export, or of a checkpoint, in the directory `place`.

    Returns the image with the weights of plain layers that were on ps.
    """
    if not has_tables(model) and not any((place / name).exists() for name in (ROWS, EXPORTED)):
        return image
    foreign: Any = getattr(model, "hold_rows", None)  # a model of another framework knows itself what it has
    if foreign is not None:
        held: Image = foreign(image, place)
        return held
    from elasticdl.embedding import holding  # needs the native core

    return holding.hold_rows(model, image, place)


def has_tables(model: nn.Module) -> bool:
    return any(getattr(module, "has_table", False) for module in model.modules())
