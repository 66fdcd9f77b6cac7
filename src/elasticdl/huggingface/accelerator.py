"""ElasticAccelerator: a loop written for Accelerate over the steps of an elastic job.

The prepared training DataLoader yields the batches of this worker's share, and `sync_gradients` is False until the
last of them: the optimizer, the scheduler and `zero_grad` of Accelerate do nothing until then. After the `backward` of
the last batch the gradients are whole, so that clipping and the update see what a single process would.

Every worker reads other DataLoaders in full. One worker is the main process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import PartialState
from accelerate.utils import GradientAccumulationPlugin
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.torch.epochs import EpochLoader, LoopState
from elasticdl.torch.join import JoinedJob, current_worker, join
from elasticdl.worker.training.step import Step


def set_main_process(is_main: bool) -> None:
    """Make this process the main process of Accelerate and of the Trainer above it, or another one."""
    state = PartialState()
    state.process_index = state.local_process_index = 0 if is_main else 1


class ElasticAccelerator(Accelerator):
    """An accelerate.Accelerator that trains with workers that come and go."""

    def __init__(
        self,
        *,
        epochs: int,
        global_batch_size: int | None = None,
        gradient_accumulation_steps: int = 1,
        max_steps: int = 0,
        seed: int = 0,
        logical_ranks: int | None = None,
        **kwargs: Any,
    ) -> None:
        """
        Args:
            epochs: How often the loop iterates over the training DataLoader.
            global_batch_size: Records per update of all workers together; by default the DataLoader's batch size times
                `gradient_accumulation_steps`.
            max_steps: The number of updates after which the training ends; 0: after `epochs`.
            seed: For the order of the data and all random numbers of the training.
            logical_ranks: Fixes the bits of the result: by default the most workers the job may have, or 1 alone.
            kwargs: The arguments of accelerate.Accelerator.
        """
        if "gradient_accumulation_plugin" in kwargs:
            raise SpecError("ElasticAccelerator: write gradient_accumulation_steps=N, not gradient_accumulation_plugin")
        # A scheduler counts updates: workers have different numbers of batches.
        plugin = GradientAccumulationPlugin(num_steps=1, adjust_scheduler=False, sync_with_dataloader=False)
        super().__init__(gradient_accumulation_plugin=plugin, **kwargs)
        if self.num_processes != 1:
            raise SpecError(
                f"ElasticAccelerator: {self.num_processes} processes of Accelerate; start the script with "
                "`elasticdl run --workers 1:4 train.py` or `python train.py`, not with accelerate launch"
            )
        self._accumulation = gradient_accumulation_steps
        self._global_batch_size = global_batch_size
        self._epochs, self._max_steps = epochs, max_steps
        self._seed, self._ranks = seed, logical_ranks
        self._trained: list[Any] = []  # prepared models, optimizers and schedulers
        self._custom: list[Any] = []
        self._training: TrainingLoader | None = None
        set_main_process(current_worker() == "worker-0")

    @property
    def job(self) -> JoinedJob:
        """The job of this training. Waits for the first round."""
        return self._loader.epochs.job

    @property
    def first_epoch(self) -> int:
        """The epoch in which this worker begins: 0, or later if it joins a running job.

        Write `for epoch in range(accelerator.first_epoch, epochs)`, so that it skips the epochs before.
        """
        return self._loader.skip_to_first_epoch()

    @property
    def loss(self) -> float:
        """The loss of the latest step over the whole global batch, the same in all workers."""
        step = self._loader.epochs.current
        if step is None:
            raise ElasticDLError("ElasticAccelerator.loss: no step was computed yet")
        return step.loss

    @property
    def _loader(self) -> TrainingLoader:
        if self._training is None:
            raise SpecError("ElasticAccelerator: pass the training DataLoader to accelerator.prepare first")
        return self._training

    def prepare(self, *args: Any, device_placement: list[bool] | None = None) -> Any:
        """Prepare objects as Accelerate does. The first DataLoader is that of the training."""
        self._trained += [item for item in args if not isinstance(item, DataLoader)]
        prepared = super().prepare(*args, device_placement=device_placement)
        results = list(prepared) if len(args) > 1 else [prepared]
        for index, item in enumerate(args):
            if isinstance(item, DataLoader) and self._training is None:
                results[index] = self._training = TrainingLoader(self, item, self._accumulation)
        return tuple(results) if len(args) > 1 else results[0]

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Add objects to the state of the training: newcomers receive them."""
        super().register_for_checkpointing(*objects)
        self._custom += objects

    def join(self, data: DataLoader[Any], state: LoopState) -> JoinedJob:
        """Join the job with the prepared objects."""
        models = [item for item in self._trained if isinstance(item, nn.Module)]
        optimizers = [item for item in self._trained if isinstance(item, torch.optim.Optimizer)]
        schedulers = [item for item in self._trained if isinstance(item, LRScheduler)]
        if len(models) != 1 or len(optimizers) != 1:
            raise SpecError(
                f"ElasticAccelerator: {len(models)} models and {len(optimizers)} optimizers were prepared; expected "
                "one of each. For several, e.g. a GAN, write the loop with elasticdl.torch.join"
            )
        size = self._global_batch_size or (data.batch_size or 0) * self._accumulation or None
        job = join(
            models[0], optimizers[0], data, global_batch_size=size, epochs=self._epochs, seed=self._seed,
            max_steps=self._max_steps, logical_ranks=self._ranks,
            state={
                **{f"scheduler-{n}": scheduler for n, scheduler in enumerate(schedulers)},
                **({"scaler": self.scaler} if self.scaler is not None else {}),
                **{f"registered-{n}": item for n, item in enumerate(self._custom)},
                "loop": state,
            },
        )  # fmt: skip
        _check_last_batch(job)
        return job

    @contextlib.contextmanager
    def accumulate(self, *models: Any) -> Iterator[None]:
        """Does nothing: `sync_gradients` follows the batches of the step."""
        yield

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Do the backward pass of one batch. After the last batch of the step the gradients are whole."""
        if kwargs:
            raise SpecError(f"ElasticAccelerator.backward takes a loss only; received {', '.join(kwargs)}")
        self._loader.backward(loss)

    def load_state(self, *args: Any, **kwargs: Any) -> None:
        raise SpecError(
            "ElasticAccelerator.load_state is not supported; a job goes on from its own checkpoints with "
            "`elasticdl run --resume`"
        )

    def end_training(self) -> None:
        if self._training is not None:
            self._training.finish()
        super().end_training()


class TrainingLoader:
    """Yields the batches of this worker's share of every step, epoch by epoch."""

    def __init__(self, accelerator: ElasticAccelerator, data: DataLoader[Any], accumulation: int) -> None:
        self._accelerator = accelerator
        self._data = data
        self._accumulation = accumulation
        self._joined: EpochLoader | None = None
        self._iteration = 0
        self._batches: Iterator[Any] = iter(())
        self._following: Any = None

    @property
    def epochs(self) -> EpochLoader:
        if self._joined is None:
            state = LoopState(dict, _ignore_state)  # the loop has no state of its own
            job = self._accelerator.join(self._data, state)
            self._joined = EpochLoader(job, state, self._place)
            set_main_process(job.is_first)  # joins: afterwards this worker has the state of the others
        return self._joined

    def __len__(self) -> int:
        """The length of a plain DataLoader: the batches of an epoch, several of which make an update."""
        return len(self.epochs) * self._accumulation

    def skip_to_first_epoch(self) -> int:
        self._iteration = max(self._iteration, self.epochs.job.step // len(self.epochs))
        return self._iteration

    def __iter__(self) -> Iterator[Any]:
        epochs, iteration = self.epochs, self._iteration
        self._iteration += 1
        if epochs.job.step // len(epochs) > iteration:
            return  # trained before this worker joined
        try:
            for step in epochs:
                yield from self._iterate_batches(step)
        except GeneratorExit:
            self.finish()  # the script has left its loop
            raise
        last = epochs.current
        if last is None or last.number + last.passes >= epochs.job.plan.total_steps:
            self.finish()

    def _iterate_batches(self, step: Step) -> Iterator[Any]:
        self._batches = iter(step)
        self._following = next(self._batches, None)
        while self._following is not None:
            batch = self._following
            self._accelerator.sync_gradients = False
            yield batch
            if self._following is batch:
                raise ElasticDLError(f"step {step.number}: call accelerator.backward(loss) for every batch")

    def backward(self, loss: torch.Tensor) -> None:
        step = self.epochs.current
        if step is None:
            raise ElasticDLError("accelerator.backward was called outside of the loop over the training DataLoader")
        step.backward(loss, scaler=self._accelerator.scaler)
        self._following = next(self._batches, None)
        self._accelerator.sync_gradients = self._following is None

    def finish(self) -> None:
        if self._joined is not None:
            self._joined.finish()
            self._accelerator.sync_gradients = True
            set_main_process(self._joined.job.is_first)

    def _place(self, step: Step) -> None:
        set_main_process(self.epochs.job.is_first)


def _ignore_state(state: Mapping[str, Any]) -> None:
    pass


def _check_last_batch(job: JoinedJob) -> None:
    """Raise SpecError if a worker may have no batch in the last step of an epoch: its loop would not update."""
    plan = job.plan
    last = plan.records % plan.global_batch
    if 0 < last < plan.logical_ranks and not plan.drop_last:
        raise SpecError(
            f"ElasticAccelerator: the last batch of an epoch has {last} records, fewer than the {plan.logical_ranks} "
            "logical ranks, so a worker could have none; write DataLoader(…, drop_last=True) or another batch size"
        )
