"""`join`: makes the steps of a plan from models, optimizers and data."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import nn

from elasticdl.data.bad_records import BadRecords
from elasticdl.data.dataset import Batch
from elasticdl.data.plan import TrainingPlan
from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.model.callbacks import Callback
from elasticdl.model.compiled import unwrap_compiled
from elasticdl.torch import checks
from elasticdl.torch.data import Data, DataPlan, describe_data, open_data
from elasticdl.worker.assembly import assemble_training
from elasticdl.worker.checkpoints import is_checkpoint_due
from elasticdl.worker.context import WorkerContext
from elasticdl.worker.embeddings.tables import EmbeddingTables, open_local_tables, open_tables
from elasticdl.worker.local import LocalTraining
from elasticdl.worker.reading.stream_requests import StreamRequests
from elasticdl.worker.script import current_context, register_training
from elasticdl.worker.training.loop import TrainingSetup, keep_learning_rate
from elasticdl.worker.training.state import TrainingState
from elasticdl.worker.training.step import Step
from elasticdl.worker.training.user_state import UserState, check_scalers
from elasticdl.worker.training.warm_up import warm_up_model

Models = nn.Module | Sequence[nn.Module] | Mapping[str, nn.Module]
Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer]


class TrainingRun(Protocol):
    """A training as a script sees it: with other workers, or alone."""

    @property
    def training(self) -> TrainingState: ...

    @property
    def name(self) -> str: ...

    @property
    def worker(self) -> str: ...

    @property
    def world_size(self) -> int: ...

    @property
    def is_first(self) -> bool: ...

    @property
    def stop_reason(self) -> str: ...

    @property
    def has_left(self) -> bool: ...

    def start_reading(self) -> None:
        """Let the data be read ahead, if it is known already which part of it this worker reads."""

    def steps(self) -> Iterator[Step]: ...

    def stop(self, reason: str) -> None:
        """End the training after this step or the next."""

    def finish_loop_exit(self) -> None:
        """If the script has left its loop early, let all members stop after the same step."""

    def close(self) -> None:
        """End what reads ahead."""


class JoinedJob:
    """The steps of one training run. Iterate over it once."""

    def __init__(self, plan: TrainingPlan, run: TrainingRun, tables: EmbeddingTables, state: UserState) -> None:
        self.plan = plan
        self._run = run
        self._tables = tables
        self._state = state
        self._is_iterated = False

    def __iter__(self) -> Iterator[Step]:
        if self._is_iterated:
            raise ElasticDLError(
                "the steps of a job are iterated a second time; `for step in job` goes over all epochs"
            )
        self._is_iterated = True
        self._run.start_reading()
        checks.check_unknown_state(self.training.optimizers, self._state)
        try:
            yield from self._run.steps()
        finally:
            self._run.close()

    @property
    def is_first(self) -> bool:
        """Whether this worker is the one to save, evaluate, log or print: True in one worker, False in all others.

        It may change when workers come and go. Before the loop it waits for the first round.
        """
        return self._run.is_first

    @property
    def name(self) -> str:
        """The job's name, the same in all workers and after a resume; "local" if the script runs alone.

        For trackers that should have one run per job: `wandb.init(id=job.name, resume="allow")`.
        """
        return self._run.name

    @property
    def worker(self) -> str:
        """The name of this worker."""
        return self._run.worker

    @property
    def world_size(self) -> int:
        """How many workers train at this moment."""
        return self._run.world_size

    @property
    def stop_reason(self) -> str:
        """Why the training ended before its plan did; empty if it did not."""
        return self._run.stop_reason

    @property
    def has_left(self) -> bool:
        """Whether this worker has left a job that goes on without it: it was released, or is about to be preempted."""
        return self._run.has_left

    def stop(self, reason: str = "the script called job.stop()") -> None:
        """End the training in all workers after the same step, this one or the next. The result is saved as usual."""
        self._run.stop(reason)

    def full_model(self) -> AbstractContextManager[None]:
        """After the last step: the model with its embedding rows in it, `with job.full_model(): save(model)`.

        Without embedding layers on ps the model is whole anyway.
        """
        self._run.finish_loop_exit()
        return self._tables.full_model()

    @property
    def step(self) -> int:
        """How many steps are done."""
        return max(0, self.training.step)  # no state yet: none

    @property
    def training(self) -> TrainingState:
        """Model, optimizers and position of this worker."""
        return self._run.training


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
    """Take part in the job that this process was started for; train alone if it was started by hand.

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
    context = current_context()
    ranks = _choose_logical_ranks(context, logical_ranks)
    _check_main_process()
    data_options = describe_data(
        data,
        shuffle=shuffle,
        drop_last=drop_last,
        collate_fn=collate_fn,
        num_workers=num_workers,
        pin_memory=pin_memory,
    )
    module = _combine_modules(model)
    optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
    user_state = UserState(list(schedulers) if isinstance(schedulers, Sequence) else [schedulers], state, after_update)
    _check_training(module, optimizers, user_state, has_learning_rate=learning_rate is not None)
    device = next(module.parameters()).device
    user_state.start_scalers(device)
    feed = open_data(
        data_options,
        DataPlan(ranks, global_batch_size, epochs, seed, max_steps, records_per_epoch),
        device=device,
        max_workers=context.spec.workers.max if context else 1,
        in_job=context is not None,
        bad_records=_open_bad_records(context),
    )
    feed.start()  # before groups are built: a loader process that is forked has no sockets of theirs
    plan = feed.plan
    if isinstance(feed.requests, StreamRequests):
        user_state.streams = feed.requests.positions
    tables = _open_tables(context, module, optimizers[0], plan)
    if warm_up is not None:  # with the tables: the model looks its rows up there
        warm_up_model(module, plan, feed.read_sample, lambda batch: [warm_up(*_split_batch(batch))])
    elif context is not None:
        checks.warn_of_cold_compile(_list_modules(model))
    setup = TrainingSetup(
        module, optimizers, device, tables, callbacks, learning_rate or keep_learning_rate, user_state
    )
    if context is None:
        return JoinedJob(plan, LocalTraining.open(setup, feed, plan), tables, user_state)
    training = assemble_training(context, setup, feed, plan)
    register_training(training)
    training.start()
    return JoinedJob(plan, training, tables, user_state)


def _choose_logical_ranks(context: WorkerContext | None, logical_ranks: int | None) -> int:
    ranks = logical_ranks or (context.spec.plan.logical_ranks if context else 1)
    if context is not None and ranks < context.spec.workers.max:
        raise SpecError(
            f"join: logical_ranks={ranks} is below the {context.spec.workers.max} workers the job may have; "
            f"leave it out or use at least {context.spec.workers.max}"
        )
    return ranks


def _check_main_process() -> None:
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SpecError(
            "join was called while a loader process imported the script, as multiprocessing_context spawn and "
            "forkserver do: put what it does under `if __name__ == '__main__':`, or leave multiprocessing_context out"
        )


def _check_training(
    model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], user_state: UserState, *, has_learning_rate: bool
) -> None:
    """Raise SpecError for a model, optimizers or a state that workers cannot train together."""
    checks.check_model(model)
    checks.check_optimizers(model, optimizers)
    if has_learning_rate and len(optimizers) > 1:
        raise SpecError("join: learning_rate= sets the rate of one optimizer; with several use schedulers=")
    user_state.check_objects()
    check_scalers(optimizers, user_state, "join")
    if has_learning_rate and user_state.schedulers:
        raise SpecError("join: learning_rate= and schedulers= both set the learning rate; give one of them")


def _open_bad_records(context: WorkerContext | None) -> BadRecords:
    if context is None:
        return BadRecords()
    return BadRecords(context.spec.data.bad_records, context.master.report_bad_record)


def _list_modules(model: Models) -> list[nn.Module]:
    """The models as they were given."""
    if isinstance(model, nn.Module):
        return [model]
    return list(model.values() if isinstance(model, Mapping) else model)


def current_worker() -> str:
    """The name of this worker; "worker-0" where the script runs alone."""
    context = current_context()
    return context.env.worker if context is not None else "worker-0"


def _combine_modules(model: Models) -> nn.Module:
    """Several models as one module. A compiled model is unwrapped, so that its names have no prefix."""
    if isinstance(model, nn.Module):
        return unwrap_compiled(model)
    if isinstance(model, Mapping):
        return nn.ModuleDict({name: _combine_modules(part) for name, part in model.items()})
    return nn.ModuleList([_combine_modules(part) for part in model])


def _open_tables(
    context: WorkerContext | None, model: nn.Module, optimizer: torch.optim.Optimizer, plan: TrainingPlan
) -> EmbeddingTables:
    if context is None:
        return open_local_tables(model, optimizer, plan.seed)
    spec = context.spec
    return open_tables(
        spec, context.master, model, optimizer, lambda step: is_checkpoint_due(spec, step) or step >= plan.total_steps
    )


def _split_batch(batch: Batch) -> Sequence[Any]:
    """The arguments that the user's `warm_up=` is called with."""
    return batch.value if isinstance(batch.value, tuple | list) else (batch.value,)
