"""Notices when a script changes what its optimizers train: all workers must train the same parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from elasticdl.errors import ElasticDLError

_END_OF_GROUP = (0, False)


class OptimizerLayout:
    """The parameters and groups of optimizers when this object was made, to compare later ones with."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._optimizers = list(optimizers)
        self._first = self._describe()

    def check_unchanged(self, step: int, trained: set[int]) -> None:
        """Raise ElasticDLError if parameters were added or unfrozen since.

        Adds the ids of the parameters that require a gradient now to `trained`, see `check_trained`.
        """
        now = self._describe()
        is_same = [parameter for parameter, _ in now] == [parameter for parameter, _ in self._first]
        if not is_same or any(is_on and not was_on for (_, is_on), (_, was_on) in zip(now, self._first, strict=True)):
            raise ElasticDLError(_layout_problem(step))
        trained |= {parameter for parameter, requires_grad in now if requires_grad}

    def check_trained(self, step: int, trained: set[int]) -> None:
        """Raise ElasticDLError if a parameter was frozen in all updates of a step; in some it may be."""
        if any(requires_grad and parameter not in trained for parameter, requires_grad in self._first):
            raise ElasticDLError(_layout_problem(step))

    def _describe(self) -> list[tuple[int, bool]]:
        """Each parameter by its id and whether it requires a gradient, group by group."""
        layout = []
        for group in [group for optimizer in self._optimizers for group in optimizer.param_groups]:
            layout += [(id(parameter), parameter.requires_grad) for parameter in group["params"]]
            layout.append(_END_OF_GROUP)
        return layout


def _layout_problem(step: int) -> str:
    return (
        f"step {step}: parameters or groups of the optimizer, or their requires_grad, have changed since "
        "join; all workers must train the same parameters from the beginning. Build the optimizer with all "
        "groups and set requires_grad before join; to freeze for a while, set the learning rate of a group to 0"
    )
