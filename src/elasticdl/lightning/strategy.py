"""ElasticStrategy: Lightning's Trainer over the steps of an elastic job.

The Trainer gets a `Step` instead of a batch: the batches of this worker's share. `training_step` computes the first
of them and `backward` the others, because Lightning clears gradients between the two. After `backward` the gradients
are whole, so that clipping, the optimizer and the schedulers of the Trainer see what a single process would.

Every worker validates over all of the data: metrics need no exchange and are the same in all workers, and so are the
decisions of callbacks. One worker writes checkpoints and logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.accelerators.cuda import CUDAAccelerator
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities.exceptions import _TunerExitException
from lightning_utilities.core.rank_zero import rank_zero_only
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.lightning.checks import check_trainer
from elasticdl.lightning.training_log import TrainingLog
from elasticdl.torch.epochs import EpochLoader, LoopState
from elasticdl.torch.join import JoinedJob, current_worker, join
from elasticdl.worker.training.step import Step


class ElasticStrategy(SingleDeviceStrategy):
    """Trains with workers that come and go: `Trainer(strategy=ElasticStrategy(), devices=1)`."""

    strategy_name = "elastic"

    def __init__(
        self,
        *,
        global_batch_size: int | None = None,
        seed: int = 0,
        logical_ranks: int | None = None,
    ) -> None:
        """
        Args:
            global_batch_size: Records per step of all workers together; by default the DataLoader's batch size.
            seed: For the order of the data and all random numbers of the training.
            logical_ranks: Fixes the bits of the result: by default the most workers the job may have, or 1 alone.
        """
        super().__init__()
        self._global_batch_size = global_batch_size
        self._seed = seed
        self._logical_ranks = logical_ranks
        self._data: DataLoader[Any] | None = None
        self._loader: EpochLoader | None = None
        self._log: TrainingLog | None = None
        self._batches: Iterator[Any] = iter(())
        self._arguments: tuple[Any, ...] = ()  # of training_step, after the batch
        # Before the first round, the worker that was launched first does the writing.
        self._set_rank(current_worker() == "worker-0")

    # ---- who writes

    @property
    def job(self) -> JoinedJob:
        """The job of this training, available from the start of `fit` on."""
        if self._loader is None:
            raise ElasticDLError("ElasticStrategy.job: the training has not begun; it begins in trainer.fit")
        return self._loader.job

    @property
    def is_global_zero(self) -> bool:
        return self.global_rank == 0

    def _set_rank(self, is_first: bool) -> None:
        self.global_rank = 0 if is_first else 1
        rank_zero_only.rank = self.global_rank  # type: ignore[attr-defined]

    # ---- setting up

    @property
    def root_device(self) -> torch.device:
        if isinstance(self.accelerator, CUDAAccelerator):
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")

    def setup(self, trainer: pl.Trainer) -> None:
        if trainer.state.fn == "fit":
            assert self.lightning_module is not None
            if self._loader is not None:
                raise SpecError("ElasticStrategy: fit was called twice; a script is one training run")
            check_trainer(trainer, self.lightning_module)
        super().setup(trainer)
        if self._data is not None and self._loader is None:
            self._join()  # configure_optimizers has asked for the length of the training, and so loaded the data

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        module = self.lightning_module
        if module is not None and module.trainer.state.fn == "fit":
            raise SpecError(
                "ElasticStrategy: fit(ckpt_path=…) is not supported; a job goes on from its own checkpoints with "
                "`elasticdl run --resume`. To begin with given weights, load them into the module before fit"
            )
        return super().load_checkpoint(checkpoint_path, weights_only)

    def process_dataloader(self, dataloader: object) -> object:
        """Join the job with the training DataLoader; DataLoaders for validation are unchanged."""
        module = self.lightning_module
        assert module is not None
        trainer: Any = module.trainer
        if trainer.state.stage != RunningStage.TRAINING:
            return dataloader
        if self._data is not None:
            raise SpecError(
                "ElasticStrategy: there are several training DataLoaders; expected one, e.g. over a "
                "torch.utils.data.StackDataset or ConcatDataset"
            )
        if not isinstance(dataloader, DataLoader):
            raise SpecError(
                f"ElasticStrategy: expected a torch.utils.data.DataLoader to train on; got {type(dataloader).__name__}"
            )
        self._data = dataloader
        if self.optimizers:
            self._join()
        return StepLoader(self, dataloader, self._global_batch_size)

    def _join(self) -> None:
        module, data = self.lightning_module, self._data
        assert module is not None and data is not None
        trainer: Any = module.trainer
        state = LoopState(self._read_state, self._write_state)
        scaler = getattr(self.precision_plugin, "scaler", None)
        log = self._log = TrainingLog(module.log)
        module.log = log  # type: ignore[method-assign]
        for callback in trainer.checkpoint_callbacks:
            # Workers cannot agree on which files exist, and a checkpoint of the same step has the same bits.
            callback._enable_version_counter = False
        state.capture()
        job = join(
            module,
            self.optimizers[0],
            data,
            global_batch_size=self._global_batch_size,
            epochs=trainer.max_epochs if trainer.max_epochs != -1 else trainer.max_steps,
            seed=self._seed,
            max_steps=max(trainer.max_steps, 0),
            logical_ranks=self._logical_ranks,
            state={
                "lightning": state,
                **({"scaler": scaler} if scaler is not None else {}),
                **{f"scheduler-{n}": config.scheduler for n, config in enumerate(self.lr_scheduler_configs)},
            },
        )
        self._loader = EpochLoader(job, state, self._place, self._end)
        self._set_rank(job.is_first)  # joins: afterwards this worker has the state of the others
        self._place_epoch(job.step // len(self._loader), began=False)

    def iterate_steps(self) -> Iterator[Step]:
        """The steps of one epoch."""
        assert self._loader is not None
        return iter(self._loader)

    # ---- the state of the Trainer

    def _read_state(self) -> dict[str, Any]:
        assert self.lightning_module is not None and self._log is not None
        trainer: Any = self.lightning_module.trainer
        return {
            "callbacks": {callback.state_key: callback.state_dict() for callback in trainer.callbacks},
            "metrics": {name: float(value) for name, value in trainer.callback_metrics.items()},
            "log": self._log.state_dict(),
        }

    def _write_state(self, state: Mapping[str, Any]) -> None:
        assert self.lightning_module is not None and self._log is not None
        trainer: Any = self.lightning_module.trainer
        for callback in trainer.callbacks:
            saved = state["callbacks"].get(callback.state_key)
            if saved:
                if "dirpath" in saved and hasattr(callback, "dirpath"):
                    callback.dirpath = saved["dirpath"]  # where the others write
                callback.load_state_dict(saved)
        trainer.callback_metrics.update({name: torch.tensor(value) for name, value in state["metrics"].items()})
        self._log.load_state_dict(state["log"])

    def _place_epoch(self, epoch: int, *, began: bool) -> None:
        assert self.lightning_module is not None
        progress = self.lightning_module.trainer.fit_loop.epoch_progress
        for tracker in (progress.total, progress.current):
            tracker.ready = tracker.started = epoch + int(began)  # type: ignore[attr-defined]
            tracker.processed = tracker.completed = epoch  # type: ignore[attr-defined]

    def _place(self, step: Step) -> None:
        """Set the Trainer's counters to those of `step`, if this worker joins in the middle of the training."""
        assert self.lightning_module is not None and self._loader is not None and self._log is not None
        self._set_rank(self._loader.job.is_first)
        fit_loop = self.lightning_module.trainer.fit_loop
        loop, number = fit_loop.epoch_loop, step.number
        batch = number % len(self._loader)
        if batch == 0:
            self._log.begin_epoch()
        if loop.batch_progress.total.ready == number:
            return
        self._place_epoch(step.epoch, began=True)
        steps = loop.automatic_optimization.optim_progress.optimizer.step
        for tracker, count in (
            (loop.batch_progress.total, number),
            (loop.batch_progress.current, batch),
            (steps.total, number),
            (steps.current, batch),
        ):
            for field in vars(tracker):
                setattr(tracker, field, count)
        loop._batches_that_stepped = number
        assert fit_loop._data_fetcher is not None
        fit_loop._data_fetcher.fetched = batch

    # ---- one step

    def batch_to_device(self, batch: Any, device: torch.device | None = None, dataloader_idx: int = 0) -> Any:
        return batch if isinstance(batch, Step) else super().batch_to_device(batch, device, dataloader_idx)

    def training_step(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the loss of the first batch of the step."""
        if not isinstance(batch, Step):
            raise ElasticDLError(f"ElasticStrategy: expected a step of the job; got {type(batch).__name__}")
        self._batches, self._arguments = iter(batch), args
        for first in self._batches:
            return self._compute_output(batch, first)
        return torch.zeros((), device=self.root_device, requires_grad=True)  # this worker has no batch in this step

    def _compute_output(self, step: Step, batch: Any) -> Any:
        assert self._log is not None
        batch = super().batch_to_device(self.precision_plugin.convert_input(batch))
        self._log.step = step
        try:
            output = super().training_step(batch, *self._arguments)
        finally:
            self._log.step = None
        if output is None:
            raise SpecError(
                f"step {step.number}: training_step returned None to skip a batch, which the other workers would not "
                "know; return a loss of zero: (0.0 * outputs).sum()"
            )
        return output

    def backward(self, closure_loss: torch.Tensor, optimizer: Optimizer | None, *args: Any, **kwargs: Any) -> Any:
        """Do the backward passes of all batches of this worker; then the gradients are whole."""
        assert self._loader is not None and self._log is not None and self.lightning_module is not None
        step, module, plugin = self._loader.current, self.lightning_module, self.precision_plugin
        assert step is not None
        scaler = getattr(plugin, "scaler", None)
        if not step.has_batch:
            step.install_gradients()  # this worker has no batch: gradients were whole before, and were cleared
        else:
            loss = Precision.pre_backward(plugin, closure_loss, module)  # the hooks, without scaling
            step.backward(loss, scaler=scaler)
            for batch in self._batches:
                loss = _extract_loss(self._compute_output(step, batch))
                step.backward(Precision.pre_backward(plugin, loss, module), scaler=scaler)
        self._log.flush(step)
        return plugin.post_backward(closure_loss, module)

    def optimizer_step(self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any) -> Any:
        plugin, module = self.precision_plugin, model or self.lightning_module
        assert isinstance(module, pl.LightningModule)
        if getattr(plugin, "scaler", None) is not None:
            return super().optimizer_step(optimizer, closure, module, **kwargs)  # computes before it steps
        # As Precision.optimizer_step, but gradients are whole and clipped before the optimizer is called.
        output = closure()
        plugin._after_closure(module, optimizer)
        optimizer.step(**kwargs)
        return output

    # ---- the end

    def _end(self) -> None:
        """Handle the end of the steps."""
        assert self.lightning_module is not None
        if self.job.has_left:
            # Leave fit at once: callbacks at the end of an epoch are for the workers that stay.
            raise _TunerExitException
        self.lightning_module.trainer.should_stop = True

    def on_train_end(self) -> None:
        if self._loader is not None:
            self._loader.finish()
            self._set_rank(self._loader.job.is_first)

    def teardown(self) -> None:
        if self._log is not None and self.lightning_module is not None:
            self.lightning_module.__dict__.pop("log", None)
        super().teardown()


class StepLoader:
    """Replaces the training DataLoader of the Trainer. It has a length before the job is joined."""

    def __init__(self, strategy: ElasticStrategy, data: DataLoader[Any], global_batch_size: int | None) -> None:
        self._strategy = strategy
        self._data = data
        self._batch_size = global_batch_size

    def __len__(self) -> int:
        if self._batch_size is None:
            return len(self._data)
        records: int = len(self._data.sampler)  # type: ignore[arg-type]
        return records // self._batch_size if self._data.drop_last else -(-records // self._batch_size)

    def __iter__(self) -> Iterator[Step]:
        yield from self._strategy.iterate_steps()


def _extract_loss(output: Any) -> torch.Tensor:
    loss = output["loss"] if isinstance(output, Mapping) else output
    assert isinstance(loss, torch.Tensor)
    return loss
