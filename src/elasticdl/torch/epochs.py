"""The steps of a job for frameworks that own the training loop: a loader that is iterated once per epoch.

A framework's counters and callbacks belong to the state of the training, too: newcomers and resumed jobs receive them.
They are read between two steps only, because in the middle of a step each worker has advanced them differently.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from elasticdl.torch.join import JoinedJob
from elasticdl.worker.training.step import Step


class LoopState:
    """The state of a framework's loop between the two latest steps. It is passed to `join` as `state=`."""

    def __init__(self, read: Callable[[], dict[str, Any]], write: Callable[[Mapping[str, Any]], None]) -> None:
        """`read` returns the state of the framework now; `write` puts a state into the framework."""
        self._read = read
        self._write = write
        self._state: dict[str, Any] = {}

    def capture(self) -> None:
        """Copy the current state. Called between two steps."""
        self._state = copy.deepcopy(self._read())

    def restore(self) -> None:
        """Put the copy into the framework."""
        if self._state:
            self._write(copy.deepcopy(self._state))

    def state_dict(self) -> dict[str, Any]:
        return self._state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state = state
        self.restore()


class EpochLoader:
    """Yields the steps of a job epoch by epoch. In a running job it begins where the job is."""

    def __init__(
        self,
        job: JoinedJob,
        state: LoopState,
        begin_step: Callable[[Step], None],
        end: Callable[[], None] = lambda: None,
    ) -> None:
        """`begin_step(step)` is called before each step, to set the framework's counters to those of the step.

        `end` is called when there are no more steps: the job was stopped, or this worker has left it.
        """
        self.job = job
        self._state = state
        self._begin_step = begin_step
        self._end = end
        self._steps: Iterator[Step] | None = None
        self._pending: Step | None = None
        self.current: Step | None = None

    def __len__(self) -> int:
        return self.job.plan.steps_per_epoch

    def __iter__(self) -> Iterator[Step]:
        """The steps of one epoch, which is that of the next step."""
        step = self._next()
        while step is not None:
            self._begin_step(step)
            yield step
            if step.is_last_of_epoch:
                return
            following = self._next()
            if following is not None and following.epoch != step.epoch:
                # This worker was expelled and has joined again in a later epoch. What the framework does at the end
                # of the earlier epoch must not count.
                self._pending = following
                return
            step = following
        self._end()

    def finish(self) -> None:
        """The framework has left its loop: complete the last step, or end the training in all workers."""
        last, total = self.current, self.job.plan.total_steps
        if self._steps is None or last is None:
            return  # it has not begun, or there were no more steps
        self._state.capture()
        if last.number + last.passes >= total:
            next(self._steps, None)
        else:
            self._steps.close()  # type: ignore[attr-defined]  # a generator
        self._steps = iter(())

    def _next(self) -> Step | None:
        if self._pending is not None:
            step, self._pending = self._pending, None
            self._state.restore()
            return step
        if self._steps is None:
            self._steps = iter(self.job)
        if self.current is not None:
            self._state.capture()
        self.current = next(self._steps, None)
        return self.current
