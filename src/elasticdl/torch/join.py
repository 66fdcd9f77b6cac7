"""`join`: from models, optimizers and data to steps of a plan."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from elasticdl.data.bad_records import BadRecords
from elasticdl.data.dataset import Batch
from elasticdl.data.plan import TrainingPlan
from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.model.callbacks import Callback
from elasticdl.model.compiled import unwrap_compiled
from elasticdl.torch import checks
from elasticdl.torch.data import Data, describe_data, open_data
from elasticdl.worker.context import ElasticTraining, WorkerContext, assemble_training, is_checkpoint_due
from elasticdl.worker.embeddings.tables import EmbeddingTables, open_local_tables, open_tables
from elasticdl.worker.local import LocalTraining
from elasticdl.worker.reading.stream_requests import StreamRequests
from elasticdl.worker.rounds.engine import ElasticEngine
from elasticdl.worker.script import current_context, register_training
from elasticdl.worker.training.state import TrainingState
from elasticdl.worker.training.step import Step
from elasticdl.worker.training.user_state import UserState, check_scalers
from elasticdl.worker.training.warm_up import warm_up_model

Models = nn.Module | Sequence[nn.Module] | Mapping[str, nn.Module]
Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer]


class JoinedJob:
    """The steps of one training run. Iterate over it once."""

    def __init__(
        self,
        plan: TrainingPlan,
        alone: LocalTraining | None,
        elastic: tuple[WorkerContext, ElasticTraining] | None,
        tables: EmbeddingTables,
        state: UserState,
    ) -> None:
        self.plan = plan
        self._tables = tables
        self._alone = alone
        self._elastic = elastic
        self._state = state
        self._is_iterated = False

    def __iter__(self) -> Iterator[Step]:
        if self._is_iterated:
            raise ElasticDLError(
                "the steps of a job are iterated a second time; `for step in job` goes over all epochs"
            )
        self._is_iterated = True
        if self._alone is not None:
            self._alone.start_reading()
            checks.check_unknown_state(self._alone.training.optimizers, self._state)
            yield from self._alone.steps()
            return
        assert self._elastic is not None
        engine = self._elastic[1].engine
        checks.check_unknown_state(engine.training.optimizers, self._state)
        try:
            yield from engine.steps()
        finally:
            self._elastic[1].feed.close()

    @property
    def is_first(self) -> bool:
        """Whether this worker is the one to save, evaluate, log or print: True in one worker, False in all others.

        It may change when workers come and go. Before the loop it waits for the first round.
        """
        if self._elastic is None:
            return True
        line, assembly = self._elastic
        assembly.engine.join()
        assembly.engine.finish_loop_exit()
        seat = line.rounds.current
        return not assembly.engine.has_left and seat is not None and seat.rank == 0

    @property
    def name(self) -> str:
        """The job's name, the same in all workers and after a resume; "local" where the script runs alone.

        For trackers that should have one run per job: `wandb.init(id=job.name, resume="allow")`.
        """
        return self._elastic[0].spec.name if self._elastic is not None else "local"

    @property
    def worker(self) -> str:
        """The name of this worker."""
        return self._elastic[0].env.worker if self._elastic is not None else "worker-0"

    @property
    def world_size(self) -> int:
        """How many workers train at this moment."""
        seat = self._elastic[0].rounds.current if self._elastic is not None else None
        return seat.group.size if seat is not None else 1

    @property
    def stop_reason(self) -> str:
        """Why the training ended before its plan did; empty where it did not."""
        return self._alone.stop_reason if self._alone is not None else self._engine.stop_reason

    @property
    def has_left(self) -> bool:
        """Whether this worker has left a job that goes on without it: it was released, or is about to be preempted."""
        return self._elastic is not None and bool(self._engine.has_left)

    def stop(self, reason: str = "the script called job.stop()") -> None:
        """End the training in all workers after the same step, this one or the next. The result is saved as usual."""
        if self._alone is not None:
            self._alone.stop(reason)
        else:
            self._engine.requested_stop_reason = self._engine.requested_stop_reason or reason

    def full_model(self) -> AbstractContextManager[None]:
        """After the last step: the model with the rows of its embedding layers in it, `with job.whole(): save(model)`.

        Without such layers the model is whole anyway.
        """
        if self._elastic is not None:
            self._engine.finish_loop_exit()
        return self._tables.full_model()

    @property
    def step(self) -> int:
        """How many steps are done."""
        return max(0, self.training.step)  # no state yet: none

    @property
    def training(self) -> TrainingState:
        """Model, optimizers and position of this worker."""
        return self._alone.training if self._alone is not None else self._engine.training

    @property
    def _engine(self) -> ElasticEngine:
        assert self._elastic is not None
        return self._elastic[1].engine


def join(
    model: Models,
    optimizer: Optimizers,
    data: Data,
    *,
    global_batch_size: int | None = None,
    epochs: int = 1,
    seed: int = 0,
    shuffle: bool | None = None,
    drop_last: bool | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    num_workers: int | None = None,
    pin_memory: bool | None = None,
    records_per_epoch: int | Sequence[int] | None = None,
    max_steps: int = 0,
    logical_ranks: int | None = None,
    schedulers: Any | Sequence[Any] = (),
    state: Mapping[str, Any] | None = None,
    after_update: Callable[[], None] | None = None,
    learning_rate: Callable[[int], float | None] | None = None,
    callbacks: Sequence[Callback] = (),
    warm_up: Callable[..., torch.Tensor] | None = None,
) -> JoinedJob:
    """Take part in the job this process was started for; alone, where it was started by hand.

    Args:
        model: A module, or several as a list or dict, e.g. a generator and a discriminator.
        optimizer: One, or several. Call `optimizer.step()` yourself after the batches of a step, or leave it to the
            job; with several you must.
        data: A map-style dataset, a DataLoader or an IterableDataset. A DataLoader brings its batch size (the global
            one, unless `global_batch_size` is given), order, `collate_fn` and processes; for a dataset `shuffle`
            (True), `drop_last` (False), `collate_fn`, `num_workers` (0) and `pin_memory` (False) say the same.
            `for batch in step` gives what `collate_fn` makes; a pair may be unpacked.
        global_batch_size: Records per step of all workers together.
        records_per_epoch: Of an IterableDataset without a length: of all streams together, or of each.
        logical_ranks: Fixes the bits of the result: by default the most workers the job may have, or 1 alone.
        schedulers: LR schedulers that the job steps once per update.
        state: Anything else with `state_dict` and `load_state_dict` that belongs to the training: an EMA, a
            GradScaler, a scheduler that the script steps itself. Change it after the batches of a step only.
        after_update: Called after each update, also for those that a new worker repeats: `ema.update` and the like.
        learning_rate: `learning_rate(step)` sets the rate of every step; groups keep their ratio to the optimizer's.
        warm_up: Computes the loss of a batch, as the loop does; the parts of a tuple or list are its arguments. Called
            before this worker joins the others, once for each size that a batch may have, so that compiling
            (torch.compile, cuDNN) does not stop them.
    """
    line = current_context()
    ranks = logical_ranks or (line.spec.plan.logical_ranks if line else 1)
    if line is not None and ranks < line.spec.workers.max:
        raise SpecError(
            f"join: logical_ranks={ranks} is below the {line.spec.workers.max} workers the job may have; "
            f"leave it out or use at least {line.spec.workers.max}"
        )
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SpecError(
            "join was called while a loader process imported the script, as multiprocessing_context spawn and "
            "forkserver do: put what it does under `if __name__ == '__main__':`, or leave multiprocessing_context out"
        )
    reading = describe_data(
        data,
        shuffle=shuffle,
        drop_last=drop_last,
        collate_fn=collate_fn,
        num_workers=num_workers,
        pin_memory=pin_memory,
    )
    module = _combine_modules(model)
    optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
    checks.check_model(module)
    checks.check_optimizers(module, optimizers)
    if learning_rate is not None and len(optimizers) > 1:
        raise SpecError("join: learning_rate= sets the rate of one optimizer; with several use schedulers=")
    given = list(schedulers) if isinstance(schedulers, Sequence) else [schedulers]
    user_state = UserState(given, state, after_update)
    user_state.check_objects()
    check_scalers(optimizers, user_state, "join")
    if learning_rate is not None and user_state.schedulers:
        raise SpecError("join: learning_rate= and schedulers= both set the learning rate; give one of them")
    device = next(module.parameters()).device
    user_state.start_scalers(device)
    feed = open_data(
        reading, global_batch_size=global_batch_size, logical_ranks=ranks, epochs=epochs, seed=seed,
        max_steps=max_steps, records_per_epoch=records_per_epoch, device=device,
        max_workers=line.spec.workers.max if line else 1, in_job=line is not None,
        bad_records=BadRecords(line.spec.data.bad_records, line.master.report_bad_record) if line else BadRecords(),
    )  # fmt: skip
    feed.start()  # before groups are built: a loader process that is forked has no sockets of theirs
    plan = feed.plan
    if isinstance(feed.requests, StreamRequests):
        user_state.streams = feed.requests.positions
    rate = learning_rate or (lambda step: None)
    tables = _open_tables(line, module, optimizers[0], plan)
    if warm_up is not None:  # with the tables: the model looks its rows up there
        warm_up_model(module, plan, feed.read_sample, lambda batch: [warm_up(*_split_batch(batch))])
    elif line is not None:
        checks.warn_of_cold_compile(_list_modules(model))
    if line is None:
        alone = LocalTraining(module, optimizers, feed, plan, callbacks, rate, device, tables, user_state)
        return JoinedJob(plan, alone, None, tables, user_state)
    assembly = assemble_training(
        line, module, optimizers, feed, plan, user_state=user_state, callbacks=callbacks, learning_rate=rate,
        tables=tables, device=device,
    )  # fmt: skip
    register_training(assembly)
    line.master.report_ready()
    return JoinedJob(plan, None, (line, assembly), tables, user_state)


def _list_modules(model: Models) -> list[nn.Module]:
    """The models as they were given."""
    if isinstance(model, nn.Module):
        return [model]
    return list(model.values() if isinstance(model, Mapping) else model)


def current_worker() -> str:
    """The name of this worker; "worker-0" where the script runs alone."""
    line = current_context()
    return line.env.worker if line is not None else "worker-0"


def _combine_modules(model: Models) -> nn.Module:
    """Several models as one; that of torch.compile as what it was made of, whose names have no prefix."""
    if isinstance(model, nn.Module):
        return unwrap_compiled(model)
    if isinstance(model, Mapping):
        return nn.ModuleDict({name: _combine_modules(part) for name, part in model.items()})
    return nn.ModuleList([_combine_modules(part) for part in model])


def _open_tables(
    line: WorkerContext | None, model: nn.Module, optimizer: torch.optim.Optimizer, plan: TrainingPlan
) -> EmbeddingTables:
    if line is None:
        return open_local_tables(model, optimizer, plan.seed)
    spec = line.spec
    return open_tables(
        spec, line.master, model, optimizer, lambda step: is_checkpoint_due(spec, step) or step >= plan.total_steps
    )


def _split_batch(batch: Batch) -> Sequence[Any]:
    """What `warm_up=` of the user is called with."""
    return batch.value if isinstance(batch.value, tuple | list) else (batch.value,)
