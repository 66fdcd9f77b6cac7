"""Checks the settings of the Trainer before the first step, and refuses those that workers cannot keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import StochasticWeightAveraging
from lightning.pytorch.utilities.model_helpers import is_overridden

from elasticdl.errors import SpecError


def check_trainer(trainer: Any, module: pl.LightningModule) -> None:
    """Raise SpecError for the first setting that workers cannot keep."""
    for message in (*_find_module_problems(trainer, module), *_find_trainer_problems(trainer)):
        raise SpecError(f"ElasticStrategy: {message}")
    for callback in trainer.callbacks:
        if isinstance(callback, StochasticWeightAveraging):
            raise SpecError(
                "ElasticStrategy: StochasticWeightAveraging replaces schedulers in the middle of the training, which "
                "newcomers cannot follow; average with torch.optim.swa_utils.AveragedModel in on_train_batch_end"
            )


def _find_module_problems(trainer: Any, module: pl.LightningModule) -> Iterator[str]:
    """Yields methods and settings of the module that the strategy replaces."""
    for is_wrong, message in (
        (
            not module.automatic_optimization,
            "automatic_optimization=False: with manual optimization write the loop yourself, with elasticdl.torch.join",
        ),
        (
            is_overridden("backward", module),
            "the module overrides backward(), which the strategy does itself; use on_before_backward or "
            "on_after_backward",
        ),
        (
            is_overridden("on_before_batch_transfer", module)
            or (trainer.datamodule is not None and is_overridden("on_before_batch_transfer", trainer.datamodule)),
            "on_before_batch_transfer is overridden; do this in the DataLoader's collate_fn or in "
            "on_after_batch_transfer",
        ),
    ):
        if is_wrong:
            yield message


def _find_trainer_problems(trainer: Any) -> Iterator[str]:
    """Yields arguments of the Trainer that would differ between workers, or would not have their usual meaning."""
    for is_wrong, message in (
        (
            trainer.accumulate_grad_batches != 1,
            f"accumulate_grad_batches={trainer.accumulate_grad_batches}: write "
            f"ElasticStrategy(global_batch_size={trainer.accumulate_grad_batches} * batch_size) instead; each worker "
            "goes through its logical ranks one after the other, so more logical ranks need less memory",
        ),
        (
            _names_several(trainer._accelerator_connector._devices_flag) or trainer.num_nodes != 1,
            "Trainer(devices=…) or num_nodes names several devices: each worker is one process with one device; "
            "write Trainer(devices=1) and elasticdl run --workers 1:4",
        ),
        (
            getattr(trainer._accelerator_connector, "sync_batchnorm", False),
            "sync_batchnorm=True: leave it out; each logical rank normalises its own slice of the batch",
        ),
        (
            trainer.max_epochs == -1 and trainer.max_steps == -1,
            "max_epochs=-1: give max_epochs or max_steps, so that all workers know where the training ends",
        ),
        (
            trainer.reload_dataloaders_every_n_epochs != 0,
            "reload_dataloaders_every_n_epochs: the DataLoader is planned once for all epochs; leave it out, and let "
            "the dataset change by itself",
        ),
        (
            trainer.overfit_batches != 0,
            "overfit_batches: use torch.utils.data.Subset(dataset, range(n)) instead",
        ),
        (
            trainer.limit_train_batches != 1.0 and not trainer.fast_dev_run,
            f"limit_train_batches={trainer.limit_train_batches}: use torch.utils.data.Subset(dataset, range(n)), or "
            "max_steps",
        ),
        (
            trainer.val_check_interval is not None and not isinstance(trainer.val_check_interval, int | float),
            f"val_check_interval={trainer.val_check_interval!r} is a time, which differs between workers; use a "
            "number of batches",
        ),
    ):
        if is_wrong:
            yield message


def _names_several(devices: Any) -> bool:
    """Whether `Trainer(devices=…)` names more than one device."""
    if isinstance(devices, str):
        return "," in devices or (devices.lstrip("-").isdigit() and devices != "1")
    return len(devices) > 1 if isinstance(devices, list | tuple) else devices != 1
