"""ElasticTrainer: Hugging Face's Trainer over the steps of an elastic job.

The Trainer gets a `Step` instead of a batch. `training_step` computes the batches of this worker's share; then the
gradients are whole, so that clipping, the optimizer and the scheduler of the Trainer see what a single process would.
Every worker evaluates over all of the data, so that metrics and decisions are the same everywhere. One worker writes
checkpoints and logs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from elasticdl.errors import SpecError
from elasticdl.huggingface.accelerator import set_main_process
from elasticdl.torch.epochs import EpochLoader, LoopState
from elasticdl.torch.join import JoinedJob, current_worker, join
from elasticdl.worker.training.step import Step

_SHARED = ("best_metric", "best_global_step", "trial_name", "num_input_tokens_seen")
_CLOCK_SUFFIXES = ("_runtime", "_per_second", "_time")  # of metrics that differ between workers


class ElasticTrainer(Trainer):
    """A transformers.Trainer that trains with workers that come and go."""

    def __init__(
        self,
        model: Any = None,
        args: TrainingArguments | None = None,
        *positional: Any,
        logical_ranks: int | None = None,
        **kwargs: Any,
    ) -> None:
        """
        Args:
            args: `per_device_train_batch_size` times `gradient_accumulation_steps` is the global batch size: the
                records of an update in all workers together. The seed is `data_seed`, or `seed`.
            logical_ranks: Fixes the bits of the result: by default the most workers the job may have, or 1 alone.
        """
        arguments = TrainingArguments() if args is None else copy.copy(args)
        _check_arguments(arguments)
        self._global_batch_size = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps
        # The Trainer counts updates: all batches of an update are one Step.
        arguments.per_device_train_batch_size = self._global_batch_size
        arguments.gradient_accumulation_steps = 1
        self._logical_ranks = logical_ranks
        self._steps: EpochLoader | None = None
        self._data: DataLoader[Any] | None = None
        self._scheduler: Any = None
        self._restored: Mapping[str, Any] = {}
        set_main_process(current_worker() == "worker-0")
        super().__init__(model, arguments, *positional, **kwargs)
        self.callback_handler.callbacks.insert(0, _CounterCallback(self))

    @property
    def job(self) -> JoinedJob:
        """The job of this training, available from the start of `train` on."""
        if self._steps is None:
            raise SpecError("ElasticTrainer.job: the training has not begun; it begins in train()")
        return self._steps.job

    @property
    def steps_per_epoch(self) -> int:
        return self.job.plan.steps_per_epoch

    def iterate_steps(self) -> Iterator[Step]:
        """The steps of one epoch."""
        assert self._steps is not None
        return iter(self._steps)

    # ---- the beginning

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        if resume_from_checkpoint:
            raise SpecError(
                "ElasticTrainer: resume_from_checkpoint is not supported; a job goes on from its own checkpoints with "
                "`elasticdl run --resume`. To begin with given weights, load them with from_pretrained"
            )
        if self._steps is not None:
            raise SpecError("ElasticTrainer: train was called twice; a script is one training run")
        return super().train(None, *args, **kwargs)

    def get_train_dataloader(self) -> Any:
        loader: Any = super().get_train_dataloader()
        sampler = getattr(loader.batch_sampler, "sampler", None)
        options: dict[str, Any] = {"sampler": sampler}
        if sampler is None or isinstance(sampler, SequentialSampler):
            options = {}
        elif isinstance(sampler, RandomSampler):
            options = {"shuffle": True}
        if loader.num_workers:
            options |= {"num_workers": loader.num_workers, "prefetch_factor": loader.prefetch_factor}
        self._data = DataLoader(
            loader.dataset,
            batch_size=self._global_batch_size,
            collate_fn=loader.collate_fn,
            drop_last=self.args.dataloader_drop_last,
            pin_memory=loader.pin_memory,
            **options,
        )
        return _StepLoader(self, self._data)

    def set_initial_training_values(self, args: TrainingArguments, dataloader: Any) -> Any:
        """Join the job, now that the length of the training is known."""
        values = super().set_initial_training_values(args, dataloader)
        num_train_epochs, max_steps = values[0], values[-1]
        self.create_optimizer()
        self._scheduler = super().create_scheduler(max_steps)
        assert self._data is not None and self.optimizer is not None and self.model is not None
        state = LoopState(self._read_state, self._store_state)
        scaler = self.accelerator.scaler
        job = join(
            self.model,
            self.optimizer,
            self._data,
            epochs=num_train_epochs,
            seed=args.seed if args.data_seed is None else args.data_seed,
            max_steps=max_steps,
            logical_ranks=self._logical_ranks,
            state={"scheduler": self._scheduler, "trainer": state} | ({"scaler": scaler} if scaler else {}),
        )
        self._steps = EpochLoader(job, state, self._place, self._end)
        set_main_process(job.is_first)  # joins: afterwards this worker has the state of the others
        return values

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The scheduler in the state of the job, once this worker has joined."""
        if self._scheduler is None:
            return super().create_scheduler(num_training_steps, optimizer)
        self.lr_scheduler = self._scheduler
        return self._scheduler

    def _init_training_state(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Start with the epoch of the job."""
        super()._init_training_state(*args, **kwargs)
        assert self._steps is not None
        self.state.global_step = self._steps.job.step
        self._write_state()
        return self._steps.job.step // len(self._steps), 0

    # ---- the state of the Trainer

    def _read_state(self) -> dict[str, Any]:
        state = self.state
        return {
            "fields": {name: getattr(state, name) for name in _SHARED},
            "log_history": [
                {name: value for name, value in entry.items() if not name.endswith(_CLOCK_SUFFIXES)}
                for entry in state.log_history
            ],
            "callbacks": [
                callback.state()
                for callback in self.callback_handler.callbacks
                if isinstance(callback, ExportableState)
            ],
            "loss": [float(self._tr_loss), float(self._total_loss_scalar), self._globalstep_last_logged],
        }

    def _store_state(self, state: Mapping[str, Any]) -> None:
        self._restored = state

    def _write_state(self) -> None:
        """Take over the received state, except for the counters of the loop, which begins later."""
        restored = self._restored
        if not restored:
            return
        for name, value in restored["fields"].items():
            setattr(self.state, name, value)
        self.state.log_history = list(restored["log_history"])
        stateful = [callback for callback in self.callback_handler.callbacks if isinstance(callback, ExportableState)]
        for callback, saved in zip(stateful, restored["callbacks"], strict=True):
            for name, value in saved["attributes"].items():
                setattr(callback, name, value)

    def _write_losses(self) -> None:
        if self._restored:
            loss, total, last_logged = self._restored["loss"]
            self._tr_loss = torch.tensor(loss, device=self.args.device)
            self._total_loss_scalar, self._globalstep_last_logged = total, last_logged
            self._initial_global_step = 0  # the losses are those of all steps
            self._restored = {}

    def _place(self, step: Step) -> None:
        assert self._steps is not None
        set_main_process(self._steps.job.is_first)
        self.state.is_world_process_zero = self.is_world_process_zero()
        self.state.is_local_process_zero = self.is_local_process_zero()
        if self._restored:  # this worker was expelled, and has received the state of the others
            self._write_state()
            self._write_losses()
        self.state.global_step = step.number

    def _end(self) -> None:
        self.control.should_training_stop = True

    # ---- one step

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> tuple[list[Any], None]:
        """The next step. The number of its labels is unknown, because other workers read a part of it."""
        step = next(epoch_iterator, None)
        return ([] if step is None else [step]), None

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Compute the batches of this worker's share; afterwards the gradients are whole."""
        step: Step = inputs
        model.train()
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()  # type: ignore[union-attr]
        for batch in step:
            _, labels = super().get_batch_samples(iter([batch]), 1, self.args.device)
            with self.compute_loss_context_manager():
                loss = self.compute_loss(model, batch, num_items_in_batch=labels)
            assert isinstance(loss, torch.Tensor)
            step.backward(loss, scaler=self.accelerator.scaler)
        return torch.tensor(step.loss, device=self.args.device)

    def floating_point_ops(self, inputs: Any) -> int:
        """Counts nothing, because each worker sees only a part of the batch."""
        return 0

    # ---- who writes

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        if self.is_world_process_zero():
            super()._save_checkpoint(*args, **kwargs)

    def finish(self) -> None:
        if self._steps is not None:
            self._steps.finish()
            set_main_process(self._steps.job.is_first)


class _StepLoader:
    """Replaces the training DataLoader of the Trainer."""

    def __init__(self, trainer: ElasticTrainer, data: DataLoader[Any]) -> None:
        self._trainer = trainer
        self._data = data
        self.dataset = data.dataset

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Step]:
        return self._trainer.iterate_steps()


class _CounterCallback(TrainerCallback):
    """Runs before all other callbacks: keeps the counters of the Trainer at the step of the job."""

    def __init__(self, trainer: ElasticTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._trainer._write_losses()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        # The Trainer counts the batches of an epoch from 0, even if this worker began in the middle.
        epoch, batch = divmod(state.global_step - 1, self._trainer.steps_per_epoch)
        state.epoch = epoch + (batch + 1) / self._trainer.steps_per_epoch

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._trainer.finish()


def _check_arguments(args: TrainingArguments) -> None:
    """Raise SpecError for arguments that workers cannot keep."""
    for is_wrong, message in (
        (
            args.n_gpu > 1,
            f"{args.n_gpu} GPUs are visible to one process; each worker has one: set CUDA_VISIBLE_DEVICES",
        ),
        (
            args.world_size > 1 or bool(args.deepspeed) or bool(args.fsdp),
            "torchrun, DeepSpeed and FSDP start or divide processes themselves; start the script with "
            "`elasticdl run --workers 1:4 train.py`",
        ),
        (
            args.load_best_model_at_end,
            "load_best_model_at_end: workers cannot load a file that one of them writes; after train() write "
            "`if trainer.is_world_process_zero(): model.from_pretrained(trainer.state.best_model_checkpoint)`",
        ),
        (args.auto_find_batch_size, "auto_find_batch_size: give the batch size, which all workers share"),
        (
            args.include_num_input_tokens_seen not in (False, "no"),
            "include_num_input_tokens_seen: each worker sees a part of the tokens; leave it out",
        ),
        (args.torch_empty_cache_steps is not None, "torch_empty_cache_steps is not supported; leave it out"),
        (str(args.optim).lower().endswith("lomo"), f"optim={args.optim} updates in its backward pass; use adamw_torch"),
    ):
        if is_wrong:
            raise SpecError(f"ElasticTrainer: {message}")
