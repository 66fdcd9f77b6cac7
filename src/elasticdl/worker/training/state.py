"""The training state of one worker: model, optimizers and position, and the one way they change."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import nn

from elasticdl.checkpoint.captured_state import CapturedState, capture_state, restore_state
from elasticdl.collective.gradients import GradientBuffers
from elasticdl.data.plan import TrainingPlan
from elasticdl.errors import ElasticDLError, LossNotFinite
from elasticdl.model.callbacks import Callback
from elasticdl.worker.training.adaptive_batch import AdaptiveBatch, Update
from elasticdl.worker.training.buffers import ModelBuffers
from elasticdl.worker.training.consistency import get_hyperparameters, set_hyperparameters
from elasticdl.worker.training.loss_history import LossHistory, UpdateLoss
from elasticdl.worker.training.numerics import seed_everything
from elasticdl.worker.training.optimizer_layout import OptimizerLayout
from elasticdl.worker.training.user_state import UserState

NO_STATE = -1
UNREPORTED_KEY = "unreported"  # not part of the state: checkpoints leave it out
_MAX_PHASES = 1 << 16  # more updates than one step will ever have
_MAX_UNCALLED = 20  # updates without optimizer.step() after which the script cannot be the one that made the state
_AFTER_UPDATE_KEY = -2  # instead of a logical rank, in the key of random numbers

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """One call of an optimizer, with what a newcomer needs to repeat it."""

    optimizer: int
    groups: list[dict[str, Any]]  # hyperparameters before the call; empty if no newcomer follows
    untouched: list[int]  # parameters without a gradient
    gradient: torch.Tensor | None  # before callbacks changed it, on the host; None if no newcomer follows

    def to_header(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer, "groups": self.groups, "untouched": self.untouched}


@dataclass(slots=True)
class OpenUpdate:
    """An update whose gradients are whole and which is not closed yet."""

    reduced: torch.Tensor
    update: Update
    has_gradients: bool = True  # of at least one parameter
    touched: Sequence[bool] | None = None  # parameters that have a gradient; None: all
    calls: list[OptimizerStep] = field(default_factory=list)
    rate_scale: float = 1.0
    rate: float = 0.0  # the learning rate of the first optimizer that was stepped; 0 if none was
    rates: list[Any] = field(default_factory=list)  # of the optimizer that is stepping now, to restore them


class TrainingState:
    """The state in training. `step` counts the applied steps; NO_STATE until a state is made, loaded or received."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        gradients: GradientBuffers,
        callbacks: Sequence[Callback],
        learning_rate: Callable[[int], float | None],
        batch: AdaptiveBatch,
        user_state: UserState | None = None,
        seed: int = 0,
    ) -> None:
        """`seed` is for random numbers in the user's `after_update`."""
        self.model = model
        self.buffers = ModelBuffers(model)
        self.optimizers = list(optimizers)
        self.gradients = gradients
        self.callbacks = list(callbacks)
        self._learning_rate = learning_rate
        self.batch = batch
        self.user_state = user_state or UserState()
        self._seed = seed
        self.step = NO_STATE
        self.phase = 0  # updates of `step` that are applied already, if a step has several
        self.update_start_step = NO_STATE  # the step that the newest update began with
        self.update_start_position = NO_STATE  # the position that the newest update was opened at
        self.records = 0
        self.loss = float("nan")
        self.keeps_gradients: Callable[[], bool] = lambda: False  # whether a newcomer needs them
        self.is_explicit = bool(self.user_state.scalers)  # the script calls optimizer.step() itself
        self._open: OpenUpdate | None = None
        self._is_void = False
        self._is_implicit_call = False
        self.losses = LossHistory(
            max_points=0
        )  # of the updates; a job that reports them replaces it by one that keeps points
        self._has_implicit_calls = False  # the job has applied updates because the script did not
        self._has_own_calls = False  # the script of this process has called optimizer.step()
        self._uncalled = 0  # updates in a row that the script of this process has not applied
        self._last_update = (1, 0, 0.0, 0.0)  # steps of the plan, records, loss, learning rate
        self._factor = 1.0  # of the learning rate; all members agreed on it in the newest update
        self._evaluated = -1  # the newest step whose evaluation the callbacks know
        self._ratios = _rate_ratios(self.optimizers[0])
        self.layout = OptimizerLayout(self.optimizers)

    def register_hooks(self) -> Self:
        """Register the hooks of the gradients and of the optimizers. Call it once, before the first update."""
        self.gradients.register_hooks()
        for index, optimizer in enumerate(self.optimizers):
            optimizer.register_step_pre_hook(self._before_call(index))
            optimizer.register_step_post_hook(self._after_call(index))
        return self

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The only optimizer, or the first of several."""
        return self.optimizers[0]

    @property
    def position(self) -> int:
        """How far the training is. Grows with every update; NO_STATE if there is no state."""
        return self.step * _MAX_PHASES + self.phase if self.has_state else NO_STATE

    @property
    def has_state(self) -> bool:
        return self.step != NO_STATE

    @property
    def learning_rate(self) -> float:
        return self._base_rate * self._factor

    @property
    def wanted_rate_factor(self) -> float:
        """The factor for the learning rate that the callbacks of this worker want, as a float32."""
        factors = [callback.rate_factor for callback in self.callbacks]
        return torch.tensor(factors).prod().item() if factors else 1.0

    @property
    def next_rate(self) -> float:
        """The learning rate of the step that is being computed."""
        rate = self._learning_rate(self.step)
        return (self._base_rate if rate is None else rate) * self._factor

    @property
    def _base_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def begin(self) -> None:
        """Begin with the model as it was built: no step is done."""
        self.step, self.phase, self.records, self._factor = 0, 0, 0, 1.0
        self.batch.begin()
        self.user_state.remember_schedulers()
        self.losses.reset()

    def discard(self) -> None:
        self.step, self.phase, self._open = NO_STATE, 0, None

    def capture(self) -> CapturedState:
        captured = capture_state(self.model, self.optimizer, self.step, self.records, self.optimizers[1:])
        captured.meta["callbacks"] = [callback.state_dict() for callback in self.callbacks]
        captured.meta["evaluated"] = self._evaluated
        captured.meta["rate_factor"] = self._factor
        captured.meta["batch"] = self.batch.state_dict()
        captured.meta["phase"] = self.phase
        captured.meta["taken"] = list(self._last_update)
        captured.meta["loss"] = self.loss if math.isfinite(self.loss) else None
        captured.meta["is_explicit"] = self.is_explicit
        captured.meta["user_state"] = self.user_state.capture(captured.tensors)
        captured.meta["losses"] = self.losses.epoch_sums()
        captured.meta[UNREPORTED_KEY] = self.losses.unreported_points()
        return captured

    def capture_weights(self) -> CapturedState:
        return capture_state(self.model, None, self.step, self.records)

    def load(self, captured: CapturedState) -> None:
        restore_state(captured, self.model, self.optimizer, self.optimizers[1:])
        for callback, state in zip(self.callbacks, captured.meta.get("callbacks", []), strict=False):
            callback.load_state_dict(state)
        self._evaluated = int(captured.meta.get("evaluated", -1))
        self._factor = float(captured.meta.get("rate_factor", 1.0))
        self.step, self.records = captured.step, captured.records
        self.phase = int(captured.meta.get("phase", 0))
        self.is_explicit = self.is_explicit or bool(captured.meta.get("is_explicit"))
        passes, records, update_loss, rate = captured.meta.get("taken", (1, 0, 0.0, 0.0))
        self._last_update = (int(passes), int(records), float(update_loss), float(rate))
        loss = captured.meta.get("loss")
        self.loss = float("nan") if loss is None else float(loss)
        self.batch.load_state_dict(captured.meta.get("batch", {}), self.step)
        self.losses.load_state(captured.meta.get("losses", {}), captured.meta.get(UNREPORTED_KEY, {}))
        self.load_user_state(captured.meta.get("user_state", {}), captured.tensors)

    def load_user_state(self, captured: Mapping[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        missing = self.user_state.restore(captured, tensors)
        if missing:
            _log.warning(
                "the state of step %d does not contain %s: they start from their initial state",
                self.step,
                ", ".join(missing),
            )

    # ---- an update

    def open_update(
        self,
        reduced: torch.Tensor,
        update: Update,
        buffers: Mapping[str, torch.Tensor],
        touched: Sequence[bool] | None = None,
    ) -> None:
        """Begin an update: the gradients in `reduced` are whole, `buffers` are those of logical rank 0.

        `touched` says which parameters have a gradient; None: all have one.
        """
        has_gradients = touched is None or any(touched)
        self.update_start_position = self.position
        self._open, self._is_void = OpenUpdate(reduced, update, has_gradients, touched), False
        self.gradients.install(reduced, touched)
        if buffers:
            self.buffers.restore(buffers)

    def install_gradients(self) -> None:
        """Put the whole gradients of the open update into `.grad` again, after something has cleared them."""
        if self._open is not None:
            self.gradients.install(self._open.reduced, self._open.touched)

    def open_void_update(self, zeros: torch.Tensor) -> None:
        """Begin an update that other workers applied, or none will: gradients are zeros, and optimizers do nothing."""
        self._open, self._is_void = None, True
        zeros.zero_()
        self.gradients.install(zeros)

    def close_void_update(self) -> None:
        self._is_void = False
        self.gradients.uninstall()

    def close_update(self, *, is_last: bool = True, is_left: bool = False) -> list[OptimizerStep]:
        """Apply the open update if the script has not, and count it; returns the calls of optimizers.

        `is_last`: no other update of the same step follows. `is_left`: the script has left its loop, and an update that
        it should have applied itself counts as skipped.
        """
        open_update = self._open
        assert open_update is not None
        if not open_update.calls and not self.is_explicit:
            problem = self._why_not_implicit(open_update, is_last=is_last)
            if problem and not is_left:
                raise ElasticDLError(problem)
            if not problem:
                self._has_implicit_calls = True
                self._call_implicitly(0)
        if not open_update.calls and not is_left:
            self._check_uncalled()
        update, self._open = open_update.update, None
        self._last_update = (update.passes, update.records, update.loss, open_update.rate)
        if open_update.calls:
            self.user_state.check_schedulers(self.step)
            if self.user_state.has_after_update:
                seed_everything(self._seed, self.step, _AFTER_UPDATE_KEY, self.phase)
            self.user_state.after_optimizer_steps([self.optimizers[call.optimizer] for call in open_update.calls])
        elif self.phase == 0:
            self.batch.record_update(open_update.update)  # a skipped update counts as a step, too
        self._factor = open_update.update.rate_factor
        self.gradients.uninstall()
        self.phase += 1
        if is_last:
            self.end_step()
        return open_update.calls

    def _check_uncalled(self) -> None:
        """An update is skipped: raise ElasticDLError if this script never applies any.

        The state says that the script calls optimizer.step(). That was the script that made it, perhaps another one.
        """
        self._uncalled += 1
        if self._uncalled > _MAX_UNCALLED and not self._has_own_calls and not self.user_state.scalers:
            raise ElasticDLError(
                f"step {self.step}: the state is of a script that called optimizer.step() itself, and this one has not "
                f"called it in {_MAX_UNCALLED} updates, which were skipped; call it after `for batch in step`"
            )

    def end_step(self) -> None:
        """Count the step after its last update; does nothing if no update of it was applied."""
        if self.phase:
            passes, records, loss, rate = self._last_update
            self.update_start_step, self.step, self.phase = self.step, self.step + passes, 0
            self.records += records
            self.losses.add(self.update_start_step, UpdateLoss(self.step, loss, rate, self.records), records)

    def _call_implicitly(self, number: int) -> None:
        self._is_implicit_call = True
        self.optimizers[number].step()
        self._is_implicit_call = False

    def _why_not_implicit(self, open_update: OpenUpdate, *, is_last: bool) -> str:
        """Why the script should have called `optimizer.step()`; empty if the job may call it."""
        if not is_last:
            return f"step {self.step}: its batches are iterated a second time; call optimizer.step() after the first"
        if len(self.optimizers) > 1:
            return (
                f"step {self.step}: with {len(self.optimizers)} optimizers the script says which of them to apply: "
                "call optimizer.step() after `for batch in step`"
            )
        if open_update.has_gradients and all(p.grad is None for p in self.gradients.parameters):
            return (
                f"step {self.step}: the gradients were cleared before the update; call optimizer.step() yourself "
                "before optimizer.zero_grad(), or leave zero_grad() out"
            )
        return ""

    def apply_update(self, reduced: torch.Tensor, update: Update, buffers: Mapping[str, torch.Tensor]) -> None:
        """Do one whole update with the reduced gradient in `reduced`."""
        self.open_update(reduced, update, buffers)
        self.close_update()

    def replay_update(
        self, reduced: torch.Tensor, update: Update, buffers: Mapping[str, torch.Tensor], header: Mapping[str, Any]
    ) -> None:
        """Repeat what another worker did: one step of an optimizer, or none if it skipped the update.

        `header` is that of an OptimizerStep, with `is_first` and `is_last` among the update's calls, and `ends_step`.
        """
        untouched = set(header["untouched"])
        touched = [index not in untouched for index in range(len(self.gradients.parameters))]
        if header["is_first"]:
            self.open_update(reduced, update, buffers, touched)
        else:
            assert self._open is not None
            self._open.reduced = reduced
            self.gradients.install(reduced, touched)
        number = header["optimizer"]
        if number >= 0:
            set_hyperparameters(self.optimizers[number], header["groups"])
            self._call_implicitly(number)
        if header["is_last"]:
            explicit, self.is_explicit = self.is_explicit, True  # an update without a call was skipped
            self.close_update(is_last=header["ends_step"])
            self.is_explicit = explicit or bool(header.get("is_explicit"))
            self._uncalled = 0  # another worker's script skipped it

    def _before_call(self, index: int) -> Callable[..., None]:
        def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            open_update = self._open
            if self._is_void:
                self.gradients.uninstall()  # so that the optimizer finds nothing to do
                return
            if open_update is None:
                if self.has_state:
                    raise ElasticDLError(
                        f"step {self.step}: optimizer.step() was called where gradients are not whole; call it after "
                        "`for batch in step`, once, or leave it to the job"
                    )
                return
            self._check_call(index, open_update, [*args[1:], *kwargs.values()])
            self._has_own_calls = self._has_own_calls or not self._is_implicit_call
            self.is_explicit = self.is_explicit or self._has_own_calls
            self._begin_call(index, optimizer, open_update)

        return before

    def _check_call(self, index: int, open_update: OpenUpdate, arguments: Sequence[Any]) -> None:
        if any(call.optimizer == index for call in open_update.calls):
            raise ElasticDLError(f"step {self.step}: optimizer.step() was called twice for the same gradients")
        if any(callable(argument) for argument in arguments):
            raise ElasticDLError(
                f"step {self.step}: optimizer.step(closure) would compute gradients in this worker alone; compute the "
                "loss in `for batch in step` and call optimizer.step() without a closure"
            )
        if self._has_implicit_calls and not self._is_implicit_call:
            raise ElasticDLError(
                f"step {self.step}: optimizer.step() was called, but the job has applied the updates before it, where "
                "it was not called; call it in every step from the first on, or leave all updates to the job"
            )

    def _begin_call(self, index: int, optimizer: torch.optim.Optimizer, open_update: OpenUpdate) -> None:
        touched = self.gradients.collect(open_update.reduced)
        gradient = self.gradients.flat(open_update.reduced).to("cpu", copy=True) if self.keeps_gradients() else None
        untouched = [number for number, is_touched in enumerate(touched) if not is_touched]
        is_first = not open_update.calls
        groups = get_hyperparameters(optimizer) if gradient is not None else []  # for newcomers only
        open_update.calls.append(OptimizerStep(index, groups, untouched, gradient))
        if is_first:
            for callback in self.callbacks:
                callback.on_gradients(self.model, self.step)
            if self.phase == 0:
                self.batch.record_update(open_update.update)
            open_update.rate_scale = self.batch.rate_scale * self._factor
        rate = self._learning_rate(self.step)
        if rate is not None and index == 0:
            for group, ratio in zip(optimizer.param_groups, self._ratios, strict=True):
                group["lr"] = rate * ratio
        open_update.rates = [group["lr"] for group in optimizer.param_groups] if open_update.rate_scale != 1.0 else []
        for group, base in zip(optimizer.param_groups, open_update.rates, strict=False):
            group["lr"] = base * open_update.rate_scale
        if is_first:
            open_update.rate = float(optimizer.param_groups[0]["lr"])

    def _after_call(self, index: int) -> Callable[..., None]:
        def after(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            if self._open is not None:
                for group, base in zip(optimizer.param_groups, self._open.rates, strict=False):
                    group["lr"] = base
                self._open.rates = []

        return after

    def normalize_gradients(self, reduced: torch.Tensor, losses: Sequence[float], records: int, planned: int) -> None:
        """Set the loss from the losses by logical rank; let `reduced` be the mean over the records that filters left.

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

    def notify_step_end(self, plan: TrainingPlan) -> None:
        """Tell the callbacks about the step that was just applied."""
        number = self.step - 1
        for callback in self.callbacks:
            callback.on_step_end(number, self.loss)
            if self.step % plan.steps_per_epoch == 0:
                callback.on_epoch_end(plan.epoch_of(number))

    def notify_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Tell the callbacks the result of an evaluation, once, in the order of the steps."""
        if step > self._evaluated:
            self._evaluated = step
            for callback in self.callbacks:
                callback.on_evaluation(step, metrics)


def _rate_ratios(optimizer: torch.optim.Optimizer) -> list[float]:
    """The learning rate of each group, relative to the optimizer's own, which `learning_rate=` sets."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    base = float(optimizer.defaults.get("lr") or rates[0])
    return [rate / base if base else 1.0 for rate in rates]
