"""The state of the user's own script: LR schedulers, EMA, GradScaler, anything with `state_dict` and `load_state_dict`.

It belongs to the training state: checkpoints contain it, newcomers receive it, all workers compare it. The job steps
schedulers, once per update; the script changes everything else, after the batches of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from elasticdl.checkpoint import values
from elasticdl.checkpoint.captured_state import OPTIMIZER_PREFIX, USER_KEY
from elasticdl.errors import CheckpointFailed, ElasticDLError, SpecError

if TYPE_CHECKING:
    from elasticdl.worker.reading.stream_requests import StreamPositions

_STREAMS_KEY = "elasticdl:streams"
AfterUpdate = Callable[[], None]


class UserState:
    """The objects of a script by name, its schedulers among them."""

    def __init__(
        self,
        schedulers: Iterable[Any] = (),
        objects: Mapping[str, Any] | None = None,
        after_update: AfterUpdate | None = None,
    ) -> None:
        """`after_update` is called after each update, also after those that a newcomer repeats."""
        self.schedulers = list(schedulers)
        self.objects = {f"scheduler-{number}": scheduler for number, scheduler in enumerate(self.schedulers)}
        self._clashes = sorted(self.objects.keys() & (objects or {}).keys())
        self.objects |= dict(objects or {})
        self.streams: StreamPositions | None = None  # of the data: saved and transferred, but not compared
        self._after_update = after_update
        self._positions: list[Any] = [_scheduler_position(scheduler) for scheduler in self.schedulers]

    @property
    def scalers(self) -> list[torch.amp.GradScaler]:
        """The gradient scalers that are in use."""
        return [o for o in self.objects.values() if isinstance(o, torch.amp.GradScaler) and o.is_enabled()]

    @property
    def has_after_update(self) -> bool:
        return self._after_update is not None

    def check_objects(self) -> None:
        """Raise SpecError if an object cannot be saved, before anything depends on it."""
        if self._clashes:
            raise SpecError(
                f"join: state[{self._clashes[0]!r}] has the name that the job gives to one of schedulers=; rename it"
            )
        for name, item in self.objects.items():
            if not (callable(getattr(item, "state_dict", None)) and callable(getattr(item, "load_state_dict", None))):
                raise SpecError(
                    f"join: state[{name!r}] is a {type(item).__name__}; expected an object with state_dict() and "
                    "load_state_dict(), as LR schedulers, torch.optim.swa_utils.AveragedModel or GradScaler have them"
                )
            try:
                values.pack_value(item.state_dict(), name, {})
            except CheckpointFailed as exc:
                raise SpecError(f"join: the state_dict() of {name!r} cannot be saved: {exc}") from exc
        for scheduler in self.schedulers:
            if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
                raise SpecError(
                    "join: schedulers= are stepped once per update without a metric, and ReduceLROnPlateau needs one; "
                    "pass it as state={'plateau': scheduler} and step it yourself after the batches of a step, with a "
                    "number that all workers share, such as step.loss"
                )
            if not callable(getattr(scheduler, "step", None)):
                raise SpecError(f"join: schedulers: expected objects with step(); received {type(scheduler).__name__}")

    def start_scalers(self, device: torch.device) -> None:
        """Give scalers their scale; by themselves they have none before the first loss.

        A worker may have no record in its first step, and steps its optimizer all the same.
        """
        for scaler in self.scalers:
            scaler.scale(torch.zeros((), device=device))

    def contains(self, item: object) -> bool:
        return any(registered is item for registered in self.objects.values())

    def after_optimizer_steps(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Step the schedulers of these optimizers, which were stepped, and run the user's own function."""
        for scheduler in self.schedulers:
            owner = getattr(scheduler, "optimizer", None)
            if owner is None or any(owner is optimizer for optimizer in optimizers):
                scheduler.step()
        if self._after_update is not None:
            self._after_update()
        self.remember_schedulers()

    def remember_schedulers(self) -> None:
        """Remember the positions of the schedulers, for `check_schedulers`."""
        self._positions = [_scheduler_position(scheduler) for scheduler in self.schedulers]

    def check_schedulers(self, step: int) -> None:
        """Raise ElasticDLError if the script has stepped a scheduler since `remember_schedulers`."""
        for number, (scheduler, before) in enumerate(zip(self.schedulers, self._positions, strict=True)):
            if _scheduler_position(scheduler) != before:
                raise ElasticDLError(
                    f"step {step}: schedulers[{number}] ({type(scheduler).__name__}) was stepped by the script, but "
                    "the job steps it once per update; remove the call, or pass it as state={'scheduler': …} and step "
                    "it yourself after optimizer.step()"
                )

    def capture(self, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
        """All objects as JSON values; tensors are copied into `tensors`."""
        items = self.objects | ({_STREAMS_KEY: self.streams} if self.streams is not None else {})
        return {
            name: values.pack_value(item.state_dict(), f"{OPTIMIZER_PREFIX}{USER_KEY}/{name}", tensors)
            for name, item in items.items()
        }

    def restore(self, captured: Mapping[str, Any], tensors: dict[str, torch.Tensor]) -> list[str]:
        """The inverse of `capture`; returns the names of objects that are not in `captured`."""
        for name, item in self.objects.items():
            if name in captured:
                item.load_state_dict(values.unpack_value(captured[name], tensors))
        if self.streams is not None and _STREAMS_KEY in captured:
            self.streams.load_state_dict(values.unpack_value(captured[_STREAMS_KEY], tensors))
        self.remember_schedulers()
        return [name for name in self.objects if name not in captured]


def check_scalers(optimizers: Sequence[torch.optim.Optimizer], state: UserState, where: str) -> None:
    """Raise SpecError if an optimizer would unscale gradients in its own step, which new workers repeat."""
    if state.scalers and any(group.get("fused") for optimizer in optimizers for group in optimizer.param_groups):
        raise SpecError(
            f"{where}: a fused optimizer with a GradScaler unscales gradients inside of its step, which a new worker "
            "cannot repeat; build the optimizer with fused=False"
        )


def _scheduler_position(scheduler: Any) -> Any:
    """How often a scheduler and the schedulers inside it were stepped."""
    if isinstance(scheduler, LRScheduler):
        inner = [_scheduler_position(part) for part in getattr(scheduler, "_schedulers", ())]
        return getattr(scheduler, "last_epoch", None), getattr(scheduler, "_step_count", None), inner
    return repr(scheduler.state_dict()) if hasattr(scheduler, "state_dict") else None
