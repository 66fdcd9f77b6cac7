"""`join`: from a model, an optimizer and a dataset to steps of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from elasticdl.data import mapped
from elasticdl.data.dataset import Dataset
from elasticdl.data.mapped import MapDataset
from elasticdl.data.plan import Plan
from elasticdl.errors import LossNotFinite, SpecError
from elasticdl.model import tensors
from elasticdl.model.callbacks import Callback
from elasticdl.worker.alone import Alone
from elasticdl.worker.assembly import Assembly, Line, assemble, is_due
from elasticdl.worker.ending import give_up
from elasticdl.worker.script import current_line, keep_assembly
from elasticdl.worker.step import Step
from elasticdl.worker.tables import NoTables, local_tables, open_tables


class Job:
    """The steps of one training run. Iterate over it once; afterwards `is_first` says who saves the result."""

    def __init__(
        self, plan: Plan, alone: Alone | None, elastic: tuple[Line, Assembly] | None, tables: NoTables
    ) -> None:
        self.plan = plan
        self._tables = tables
        self._alone = alone
        self._elastic = elastic
        self._is_first = False

    def __iter__(self) -> Iterator[Step]:
        if self._alone is not None:
            yield from self._alone.steps()
            self._is_first = True
            return
        assert self._elastic is not None
        line, assembly = self._elastic
        try:
            yield from assembly.engine.steps()
        except LossNotFinite as exc:
            give_up(line, assembly, exc)
            raise
        seat = line.rounds.seat
        self._is_first = not assembly.engine.has_left and seat is not None and seat.rank == 0

    @property
    def is_first(self) -> bool:
        """After the last step: whether this worker is the one to save, evaluate or print. False in all others."""
        return self._is_first

    def whole(self) -> AbstractContextManager[None]:
        """After the last step: the model with the rows of its embedding layers in it, `with job.whole(): save(model)`.

        Without such layers the model is whole anyway.
        """
        return self._tables.whole()

    @property
    def step(self) -> int:
        """How many steps are done."""
        training = self._alone.training if self._alone is not None else self._training
        return training.step

    @property
    def _training(self) -> Any:
        assert self._elastic is not None
        return self._elastic[1].engine.training


def join(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    dataset: MapDataset,
    *,
    global_batch_size: int,
    epochs: int = 1,
    seed: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
    max_steps: int = 0,
    logical_ranks: int | None = None,
    learning_rate: Callable[[int], float | None] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Job:
    """Take part in the job this process was started for; alone, where it was started by hand.

    `dataset` gives (features, labels) by number. `logical_ranks` fixes the bits of the result: by default the most
    workers the job may have, or 1 alone. `learning_rate(step)` sets the rate of every step.
    """
    line = current_line()
    ranks = logical_ranks or (line.spec.plan.logical_ranks if line else 1)
    if line is not None and ranks < line.spec.workers.max:
        raise SpecError(
            f"join: logical_ranks={ranks} is below the {line.spec.workers.max} workers the job may have; "
            f"leave it out or use at least {line.spec.workers.max}"
        )
    if global_batch_size < ranks:
        raise SpecError(f"join: global_batch_size={global_batch_size} is smaller than the {ranks} logical ranks")
    source = mapped.as_source(dataset, "the dataset of join")
    plan = Plan(
        records=len(source),
        global_batch=global_batch_size,
        logical_ranks=ranks,
        epochs=epochs,
        seed=seed,
        shuffle=shuffle,
        drop_last=drop_last,
        max_steps=max_steps,
    )
    items = Dataset(source, stack=tensors.stack)
    device = next(model.parameters()).device
    rate = learning_rate or (lambda step: None)
    if line is None:
        tables = local_tables(model, optimizer, seed)
        return Job(plan, Alone(model, optimizer, items, plan, callbacks, rate, device, tables), None, tables)
    spec = line.spec
    tables = open_tables(spec, line.link, model, optimizer, lambda step: is_due(spec, step) or step >= plan.total_steps)
    assembly = assemble(
        line, model, optimizer, items, plan, callbacks=callbacks, learning_rate=rate, tables=tables, device=device
    )  # fmt: skip
    keep_assembly(assembly)
    line.link.ready()
    return Job(plan, None, (line, assembly), tables)
