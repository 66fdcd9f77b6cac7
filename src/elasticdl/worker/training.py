"""The training state of one worker: model, optimizer, position, and the one way it changes.

An update is a function of (state, reduced gradient, step), so whoever applies the same
updates to the same image holds the same bits.
"""

from __future__ import annotations

import math
import os
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from elasticdl.checkpoint import image as images
from elasticdl.checkpoint.image import Image
from elasticdl.collective.gradients import Gradients
from elasticdl.data.plan import Plan
from elasticdl.errors import LossNotFinite
from elasticdl.model.callbacks import Callback
from elasticdl.worker.batch import Batch, Update

NO_STATE = -1


class Training:
    """What is trained. `step` counts the applied steps; NO_STATE until a state was made, loaded or received."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        gradients: Gradients,
        callbacks: Sequence[Callback],
        learning_rate: Callable[[int], float | None],
        batch: Batch,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.gradients = gradients
        self.callbacks = list(callbacks)
        self._learning_rate = learning_rate
        self.batch = batch
        self.step = NO_STATE
        self.began = NO_STATE  # the step that the newest update began with
        self.records = 0
        self.loss = float("nan")
        self._factor = 1.0  # of the learning rate, as all members agreed in the newest update
        self._evaluated = -1  # the newest step whose evaluation the callbacks know

    @property
    def holds_state(self) -> bool:
        return self.step != NO_STATE

    @property
    def learning_rate(self) -> float:
        return self._base * self._factor

    @property
    def wanted_factor(self) -> float:
        """What the callbacks of this worker want the rate multiplied with, as exact as it travels."""
        return torch.tensor([callback.rate_factor for callback in self.callbacks]).prod().item()

    @property
    def next_rate(self) -> float:
        """The learning rate of the step that is computed now."""
        rate = self._learning_rate(self.step)
        return (self._base if rate is None else rate) * self._factor

    @property
    def _base(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def begin(self) -> None:
        """The state is what was built: no step done yet."""
        self.step, self.records, self._factor = 0, 0, 1.0
        self.batch.begin()

    def forget(self) -> None:
        self.step = NO_STATE

    def capture(self) -> Image:
        image = images.capture(self.model, self.optimizer, self.step, self.records)
        image.meta["callbacks"] = [callback.state() for callback in self.callbacks]
        image.meta["evaluated"] = self._evaluated
        image.meta["rate_factor"] = self._factor
        image.meta["batch"] = self.batch.state()
        return image

    def capture_weights(self) -> Image:
        return images.capture(self.model, None, self.step, self.records)

    def load(self, image: Image) -> None:
        images.restore(image, self.model, self.optimizer)
        for callback, state in zip(self.callbacks, image.meta.get("callbacks", []), strict=False):
            callback.load_state(state)
        self._evaluated = int(image.meta.get("evaluated", -1))
        self._factor = float(image.meta.get("rate_factor", 1.0))
        self.step, self.records = image.step, image.records
        self.batch.load(image.meta.get("batch", {}), self.step)

    def apply(self, reduced: torch.Tensor, update: Update, buffers: Mapping[str, torch.Tensor]) -> None:
        """One update with the reduced gradient in `reduced`, and the buffers that logical rank 0 ended with."""
        rate = self._learning_rate(self.step)
        if rate is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
        self.gradients.install(reduced)
        for callback in self.callbacks:
            callback.on_gradients(self.model, self.step)
        with scaled_rate(self.optimizer, self.batch.take(update) * self._factor):
            self.optimizer.step()
        self._factor = update.rate_factor
        self.gradients.uninstall()
        if buffers:
            self.set_buffers(buffers)
        self.began, self.step = self.step, self.step + update.passes
        self.records += update.records

    def weigh(self, reduced: torch.Tensor, losses: Sequence[float], records: int, planned: int) -> None:
        """Take the losses of a step by logical rank, and let `reduced` be the mean over the records filters have left.

        Raises LossNotFinite.
        """
        for rank, loss in enumerate(losses):
            if not math.isfinite(loss):
                raise LossNotFinite(
                    f"the loss became {loss} in step {self.step} at logical rank {rank}: "
                    "lower the learning rate, clip gradients or look at its data"
                )
        if records and records != planned:
            self.gradients.flat(reduced).mul_(planned / records)
        self.loss = sum(losses) * planned / max(records, 1)

    def completed(self, plan: Plan) -> None:
        """Tell the callbacks of the step just applied."""
        number = self.step - 1
        for callback in self.callbacks:
            callback.on_step_end(number, self.loss)
            if self.step % plan.steps_per_epoch == 0:
                callback.on_epoch_end(plan.epoch_of(number))

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """Tell the callbacks the result of an evaluation, once, in the order of the steps."""
        if step > self._evaluated:
            self._evaluated = step
            for callback in self.callbacks:
                callback.on_evaluation(step, metrics)

    # ---- buffers (BatchNorm and the like): those of logical rank 0 count

    def buffers(self) -> dict[str, torch.Tensor]:
        return {name: buffer.detach().clone() for name, buffer in self.model.named_buffers()}

    def set_buffers(self, values: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                buffer.copy_(values[name])


@contextmanager
def scaled_rate(optimizer: torch.optim.Optimizer, factor: float) -> Iterator[None]:
    """With the learning rates of `optimizer` multiplied by `factor`; afterwards they are what they were."""
    if factor == 1.0:
        yield
        return
    before = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * factor
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, before, strict=True):
            group["lr"] = rate


def seed_everything(*key: int) -> None:
    """Make all random numbers a function of `key`, e.g. (seed, step, logical rank)."""
    value = zlib.crc32("/".join(map(str, key)).encode())
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(value)
    random.seed(value)
    np.random.seed(value)


def fix_numerics(threads: int, device: str, reproducible: bool) -> None:
    """Settings that are part of the bits. Threads too: each number of them sums in another order."""
    torch.set_num_threads(threads)
    if device == "cuda" and reproducible:
        # Read by cuBLAS when it starts: without it its sums depend on which stream got which workspace.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
