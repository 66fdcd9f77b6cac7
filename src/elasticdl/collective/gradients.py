"""A worker's gradients of one step: flat buffers, filled by hooks, summed along the tree.

Autograd's gradients are moved into a flat buffer as soon as each is ready, so a backward
pass costs one copy (or one addition, if the buffer already holds the sibling's sum) and
no second set of gradients is kept. Behind the gradients each buffer has a `tail`: a few
numbers that travel with the step (records, losses, votes).

A logical rank may have several backward passes: micro-batches one after the other, whose gradients make one update.
They are added up first, in their order; the tree is over their sums.

While a step is computed, the gradients of a parameter are spread over workers: `.grad` is then a `PartialGradient`,
which warns if it is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Self

import torch
from torch import nn
from torch._guards import CompileContext

from elasticdl.collective.squared_norms import SquaredNorms
from elasticdl.collective.tree import RankRange, ReductionTree, TreeNode, push_node
from elasticdl.errors import ElasticDLError

_ALIGNMENT = 16  # elements


class PartialGradient(torch.Tensor):
    """The value of `.grad` while the gradient is not whole: zeros without storage. Any use of it warns."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        with torch._C.DisableTorchFunctionSubclass():
            # Shape, dtype and the like say nothing about the gradient, and torch.compile reads more than these.
            if name == "__get__" or CompileContext.try_get() is not None:
                return func(*args, **(kwargs or {}))
            warnings.warn(
                "`.grad` is used inside of `for batch in step`, where this worker knows only its own part of it: "
                "it reads as zeros and cannot be changed. Use gradients after that loop: there they are whole, "
                "and torch.nn.utils.clip_grad_norm_ works as usual",
                UserWarning,
                stacklevel=2,
            )
            is_in_place = name.endswith("_") and not name.endswith("__")
            return args[0] if is_in_place or name.startswith("_foreach") else func(*args, **(kwargs or {}))


class GradientBuffers:
    """Flat gradient buffers for one set of parameters."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        tree: ReductionTree,
        tail: int,
        *,
        ordered: bool,
        squares: SquaredNorms | None = None,
        warns: bool = False,
    ) -> None:
        """`ordered` keeps the tree's order; without it, all ranks of a worker are added up as they come.

        `squares` measures the gradient of every pass. With `warns`, `.grad` is a PartialGradient while it is not whole.
        """
        self.parameters = [p for p in parameters if p.requires_grad]
        self._tree = tree
        self._ordered = ordered
        self._squares = squares
        is_double = any(p.dtype in (torch.float64, torch.complex128) for p in self.parameters)
        self.dtype = torch.float64 if is_double else torch.float32
        self.device = self.parameters[0].device
        # Each parameter's gradient begins on a cache line; what lies between stays zero.
        self.sizes = [-(-_count_reals(p) // _ALIGNMENT) * _ALIGNMENT for p in self.parameters]
        self.elements = sum(self.sizes)
        self.length = self.elements + tail
        # Any number of workers, up to the number of logical ranks, divides a part of the buffer into equal chunks.
        self._capacity = self.length + tree.logical_ranks
        self._free: list[torch.Tensor] = []
        self._views: dict[int, list[torch.Tensor]] = {}
        self._share = RankRange(0, 0)
        self._stack: list[TreeNode] = []
        self._sums: list[torch.Tensor] = []
        self._targets: list[
            list[torch.Tensor]
        ] = []  # the sum being computed, then the sums it completes, inner to outer
        self._adding = False
        self._merges = 0  # nodes that the rank being computed completes
        self._is_last = False
        self._is_computing = False  # from `start_update` until the gradients are whole
        self._seen = bytearray()
        self.touched = bytearray(len(self.parameters))  # by parameter: whether it got a gradient in this update
        self._on_final: Callable[[int], None] | None = None
        self._partial = [_make_partial(parameter) for parameter in self.parameters] if warns else []

    def register_hooks(self) -> Self:
        """Begin to receive the gradients that autograd computes for the parameters. Call it once."""
        for index, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(self._make_hook(index))  # type: ignore[no-untyped-call]
        return self

    def start_update(self, share: RankRange, on_final: Callable[[int], None] | None = None) -> None:
        """Begin a new update. `on_final(i)` is called as soon as parameter i has its sum over the whole share.

        It is called only if the share is one node: otherwise there is no single sum to wait for.
        """
        self._free += self._sums
        self._stack, self._sums, self._share = [], [], share
        self.touched = bytearray(len(self.parameters))
        self._is_computing = True
        if self._squares is not None:
            self._squares.start_step()
        self._on_final = on_final if len(self.share_nodes(share)) == 1 else None

    def discard(self) -> None:
        """Break off the step. Operations that were started may still write to its buffers, so these are dropped."""
        self._stack, self._sums, self._free = [], [], []
        self._views.clear()

    def backward(
        self,
        loss: torch.Tensor,
        logical_rank: int,
        weight: float,
        *,
        is_first: bool = True,
        is_last: bool = True,
    ) -> None:
        """Do one backward pass of a logical rank; its gradient is scaled by `weight` and added to the tree.

        The passes of a rank follow each other: `is_first` and `is_last` mark the first and the last one.
        """
        self._open(logical_rank, is_first=is_first, is_last=is_last)
        for parameter in self.parameters if self._partial else ():
            parameter.grad = None
        (loss * weight if weight != 1.0 else loss).backward()  # type: ignore[no-untyped-call]
        self._close()
        for parameter, partial in zip(self.parameters, self._partial, strict=False):
            parameter.grad = partial
        if self._squares is not None:
            self._squares.close_rank(logical_rank, weight)

    def skip(self, logical_rank: int, *, is_first: bool = True, is_last: bool = True) -> None:
        """Count a pass of a logical rank without records as zeros, so that the tree keeps its shape."""
        self._open(logical_rank, is_first=is_first, is_last=is_last)
        self._close()

    def node_sums(self) -> list[torch.Tensor]:
        """The sums of this worker's nodes, in order; the tail of each is zeros until it is written."""
        return self._sums

    def tail(self, buffer: torch.Tensor) -> torch.Tensor:
        return buffer[self.elements : self.length]

    def flat(self, buffer: torch.Tensor) -> torch.Tensor:
        """The part of a buffer that holds gradients."""
        return buffer[: self.elements]

    def share_nodes(self, share: RankRange) -> list[TreeNode]:
        return self._tree.cover(share) if self._ordered else [TreeNode(share.first, 1)]

    def install(self, buffer: torch.Tensor, touched: Sequence[bool] | None = None) -> None:
        """Let the optimizer see the reduced gradients in `buffer`.

        `touched` names the parameters that have one; the others have none, as in plain PyTorch.
        """
        self._is_computing = False
        for index, (parameter, view) in enumerate(zip(self.parameters, self._views_of(buffer), strict=True)):
            if touched is not None and not touched[index]:
                parameter.grad = None
            else:
                parameter.grad = view if view.dtype == parameter.dtype else view.to(parameter.dtype)

    def collect(self, buffer: torch.Tensor) -> list[bool]:
        """Copy `.grad`, which may have changed since `install`, into `buffer`; returns which parameters have one."""
        touched = []
        for parameter, view in zip(self.parameters, self._views_of(buffer), strict=True):
            gradient = parameter.grad
            touched.append(gradient is not None)
            if gradient is not None and gradient.data_ptr() != view.data_ptr():
                view.copy_(gradient.to_dense() if gradient.is_sparse else gradient)
        return touched

    def uninstall(self) -> None:
        self._is_computing = False
        for parameter in self.parameters:
            parameter.grad = None

    def acquire(self) -> torch.Tensor:
        """A free buffer; give it back with `release`."""
        if self._free:
            return self._free.pop()
        return torch.zeros(self._capacity, dtype=self.dtype, device=self.device)

    def release(self, buffers: Sequence[torch.Tensor]) -> None:
        self._free += buffers

    def _open(self, logical_rank: int, *, is_first: bool, is_last: bool) -> None:
        if is_first:
            self._push_leaf(logical_rank, is_only=is_last)
        else:
            self._adding = True
        completed = self._merges if is_last else 0
        self._targets = [self._views_of(buffer) for buffer in reversed(self._sums[-completed - 1 :])]
        self._is_last = is_last and logical_rank == self._share.stop - 1
        self._seen = bytearray(len(self.parameters))

    def _push_leaf(self, logical_rank: int, *, is_only: bool) -> None:
        leaf = self._tree.climb(TreeNode(logical_rank, 1))
        if self._ordered:
            # A right leaf is added to its left sibling while it is computed, and so are the nodes this completes.
            # A leaf of several passes is summed first: the order must not depend on which worker has its sibling.
            is_right = bool(self._stack) and self._tree.find_parent(self._stack[-1], leaf) is not None
            self._adding = is_only and is_right
            self._merges = push_node(self._tree, self._stack, leaf) - int(self._adding)
        else:
            self._adding, self._merges = bool(self._sums), 0
        if not self._adding:
            fresh = self.acquire()
            self.tail(fresh).zero_()
            self._sums.append(fresh)

    def _close(self) -> None:
        if not all(self._seen):
            for index in [index for index, seen in enumerate(self._seen) if not seen]:
                if not self._adding:
                    self._targets[0][index].zero_()
                self._complete_parameter(index)
        completed = len(self._targets) - 1
        self._targets = []
        if completed:
            self._free += self._sums[-completed:]
            del self._sums[-completed:]

    def _complete_parameter(self, index: int) -> None:
        """Parameter `index` has its sum of this rank: add it to the nodes that this rank completes."""
        for inner, outer in pairwise(self._targets):
            outer[index].add_(inner[index])
        if self._is_last and self._on_final is not None:
            self._on_final(index)

    def _make_hook(self, index: int) -> Callable[[torch.Tensor], None]:
        def move(parameter: torch.Tensor) -> None:
            if not self._targets:
                self._check_outside()
                return
            gradient = parameter.grad
            parameter.grad = None
            if gradient is None:
                return
            if gradient.is_sparse:
                gradient = gradient.to_dense()
            if self._squares is not None:
                self._squares.add(torch.view_as_real(gradient.resolve_conj()) if gradient.is_complex() else gradient)
            if self._adding:
                self._targets[0][index].add_(gradient)
            else:
                self._targets[0][index].copy_(gradient)
            self._seen[index] = self.touched[index] = 1
            self._complete_parameter(index)

        return move

    def _check_outside(self) -> None:
        """Raise ElasticDLError for a backward pass of the script's own inside of a step."""
        if self._is_computing and self._partial:
            raise ElasticDLError(
                "a backward pass inside of `for batch in step` that is not the step's: write step.backward(loss) "
                "instead of loss.backward(), so that the gradients of all workers are summed"
            )

    def _views_of(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        views = self._views.get(buffer.data_ptr())
        if views is None:
            parts = torch.split(buffer[: self.elements], self.sizes)
            views = [_view_as(part, p) for part, p in zip(parts, self.parameters, strict=True)]
            self._views[buffer.data_ptr()] = views
        return views


def _count_reals(parameter: nn.Parameter) -> int:
    """How many real numbers `parameter` holds."""
    return parameter.numel() * (2 if parameter.is_complex() else 1)


def _view_as(part: torch.Tensor, parameter: nn.Parameter) -> torch.Tensor:
    """The beginning of a flat `part` in the shape of `parameter`."""
    if parameter.is_complex():
        return torch.view_as_complex(part[: _count_reals(parameter)].view(*parameter.shape, 2))
    return part[: parameter.numel()].view(parameter.shape)


def _make_partial(parameter: nn.Parameter) -> torch.Tensor:
    zeros = torch.zeros((), dtype=parameter.dtype, device=parameter.device)
    return zeros.expand(parameter.shape).as_subclass(PartialGradient)
