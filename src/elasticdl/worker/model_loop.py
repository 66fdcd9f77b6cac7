"""The body of a model file's training loop: in which precision a loss is computed, and in which micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import nn

from elasticdl.model import tensors
from elasticdl.model.contract import Contract
from elasticdl.spec import PlanSpec, Precision
from elasticdl.worker.step import Step
from elasticdl.worker.user_state import UserState, check_scalers

_TYPES = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


class MicroBatch(NamedTuple):
    """A part of a batch, or all of it, whose forward pass is done."""

    loss: torch.Tensor  # the mean over its records
    records: int | None  # None: all of the batch


class ModelLoop:
    """How the batches of a job's plan are computed. With fp16 the `GradScaler` is part of the training state."""

    def __init__(self, contract: Contract, model: nn.Module, plan: PlanSpec, device: torch.device) -> None:
        """`model` is called as it is, compiled where the file has compiled it."""
        self._contract = contract
        self._model = model
        self._micro_batch = plan.micro_batch_size
        self._type = _TYPES.get(plan.precision)
        self._device = device
        scaler = torch.amp.GradScaler(device.type) if plan.precision is Precision.FP16 else None
        self._scaler = scaler
        self.user_state = UserState(objects={"scaler": scaler}) if scaler is not None else None
        if self.user_state is not None:
            self.user_state.start_scalers(device)

    def check(self, optimizer: torch.optim.Optimizer) -> None:
        """Raise SpecError where the updates of this optimizer would not be the same in all workers."""
        if self.user_state is not None:
            check_scalers([optimizer], self.user_state, "plan.precision: fp16")

    def micro_batches(self, features: Any, labels: Any) -> Iterator[MicroBatch]:
        """Those of a batch, in the order of its records. Each is computed when it is asked for."""
        records = tensors.batch_size(features) if self._micro_batch else 0
        if records <= self._micro_batch:
            yield MicroBatch(self._loss(features, labels), None)
            return
        for start in range(0, records, self._micro_batch):
            stop = min(start + self._micro_batch, records)
            part = tensors.rows(features, start, stop), tensors.rows(labels, start, stop)
            yield MicroBatch(self._loss(*part), stop - start)

    def compute(self, step: Step) -> None:
        """All batches of a step; its gradients are whole afterwards."""
        for features, labels in step:
            for loss, records in self.micro_batches(features, labels):
                step.backward(loss, records=records, scaler=self._scaler)

    def update(self, optimizer: torch.optim.Optimizer, *, is_explicit: bool) -> None:
        """After the batches of a step: what the job does not apply itself. `is_explicit`: it applies nothing."""
        if self._scaler is None:
            if is_explicit:  # the state is of a training with a scaler
                optimizer.step()
        elif any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"]):
            # Gradients are unscaled before the optimizer's step begins, and callbacks see them there.
            self._scaler.step(optimizer)
            self._scaler.update()

    def _loss(self, features: Any, labels: Any) -> torch.Tensor:
        with self._autocast():
            loss = self._contract.batch_loss(self._model, features, labels)
        return loss.float() if loss.dtype in _TYPES.values() else loss

    def _autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._type is None else torch.autocast(self._device.type, dtype=self._type)
