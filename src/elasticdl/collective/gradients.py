"""A worker's gradients of one step: flat buffers, filled by hooks, summed along the tree.

Autograd's gradients are moved into a flat buffer as soon as each is ready, so a backward
pass costs one copy (or one addition, where the buffer already holds the sibling's sum) and
no second set of gradients is kept. Behind the gradients each buffer has a `tail`: a few
numbers that travel with the step (records, losses, votes).

A step may have several passes, batches one after the other whose gradients make one update. Those of a logical rank
are added up first, in their order; the tree is over their sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import torch
from torch import nn

from elasticdl.collective.squares import Squares
from elasticdl.collective.tree import Node, Share, Tree, push

_ALIGNED = 16  # elements


class Gradients:
    """Flat gradient buffers for one set of parameters."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        tree: Tree,
        tail: int,
        *,
        ordered: bool,
        squares: Squares | None = None,
    ) -> None:
        """`ordered` keeps the tree's order; without it all ranks of a worker are added up as they come.

        `squares` is shown the gradient of every pass.
        """
        self.parameters = [p for p in parameters if p.requires_grad]
        self._tree = tree
        self._ordered = ordered
        self._squares = squares
        self.dtype = torch.float64 if any(p.dtype == torch.float64 for p in self.parameters) else torch.float32
        self.device = self.parameters[0].device
        # Each parameter's gradient begins on a cache line; what lies between stays zero.
        self.sizes = [-(-p.numel() // _ALIGNED) * _ALIGNED for p in self.parameters]
        self.elements = sum(self.sizes)
        self.length = self.elements + tail
        # Any number of workers up to the logical ranks cuts a part of the buffer into equal chunks.
        self._capacity = self.length + tree.logical_ranks
        self._free: list[torch.Tensor] = []
        self._views: dict[int, list[torch.Tensor]] = {}
        self._share = Share(0, 0)
        self._stack: list[Node] = []
        self._sums: list[torch.Tensor] = []
        self._targets: list[list[torch.Tensor]] = []  # the sum being made, then those it completes, inner to outer
        self._adding = False
        self._merges = 0  # nodes that the rank being computed completes
        self._is_last = False
        self._seen = bytearray()
        self._on_final: Callable[[int], None] | None = None
        for index, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(self._hook(index))  # type: ignore[no-untyped-call]

    def start(self, share: Share, on_final: Callable[[int], None] | None = None) -> None:
        """Forget the step so far. `on_final(i)` is called as soon as parameter i has its sum over the whole share.

        It is called where the share is one node only: else there is no one sum to wait for.
        """
        self._free += self._sums
        self._stack, self._sums, self._share = [], [], share
        if self._squares is not None:
            self._squares.start()
        self._on_final = on_final if len(self.nodes(share)) == 1 else None

    def abandon(self) -> None:
        """The step broke off: what was begun with its buffers may still write to them, so they are given up."""
        self._stack, self._sums, self._free = [], [], []
        self._views.clear()

    def backward(self, loss: torch.Tensor, logical_rank: int, weight: float, number: int = 0, passes: int = 1) -> None:
        """Pass `number` of one logical rank, its gradient scaled by `weight` and put in its place in the tree."""
        self._open(logical_rank, is_first=number == 0, is_last=number == passes - 1)
        (loss * weight if weight != 1.0 else loss).backward()  # type: ignore[no-untyped-call]
        self._close()
        if self._squares is not None:
            self._squares.close(logical_rank, weight)

    def skip(self, logical_rank: int, number: int = 0, passes: int = 1) -> None:
        """A pass of a logical rank without records: zeros, so that the tree keeps its shape."""
        self._open(logical_rank, is_first=number == 0, is_last=number == passes - 1)
        self._close()

    def sums(self) -> list[torch.Tensor]:
        """The values of this worker's nodes, in order; the tail of each is zeros until written."""
        return self._sums

    def tail(self, buffer: torch.Tensor) -> torch.Tensor:
        return buffer[self.elements : self.length]

    def flat(self, buffer: torch.Tensor) -> torch.Tensor:
        """The part of a buffer that holds gradients."""
        return buffer[: self.elements]

    def nodes(self, share: Share) -> list[Node]:
        return self._tree.nodes(share) if self._ordered else [Node(share.first, 1)]

    def install(self, buffer: torch.Tensor) -> None:
        """Let the optimizer see the reduced gradients in `buffer`."""
        for parameter, view in zip(self.parameters, self._views_of(buffer), strict=True):
            parameter.grad = view if view.dtype == parameter.dtype else view.to(parameter.dtype)

    def uninstall(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def buffer(self) -> torch.Tensor:
        """A buffer to receive into; give it back with `release`."""
        if self._free:
            return self._free.pop()
        return torch.zeros(self._capacity, dtype=self.dtype, device=self.device)

    def release(self, buffers: Sequence[torch.Tensor]) -> None:
        self._free += buffers

    def _open(self, logical_rank: int, *, is_first: bool, is_last: bool) -> None:
        if is_first:
            self._place(logical_rank, is_only=is_last)
        else:
            self._adding = True
        completed = self._merges if is_last else 0
        self._targets = [self._views_of(buffer) for buffer in reversed(self._sums[-completed - 1 :])]
        self._is_last = is_last and logical_rank == self._share.stop - 1
        self._seen = bytearray(len(self.parameters))

    def _place(self, logical_rank: int, *, is_only: bool) -> None:
        leaf = self._tree.grown(Node(logical_rank, 1))
        if self._ordered:
            # A right leaf is added onto its left sibling as it is computed, and so are the nodes this completes. One of
            # several passes is summed first: who has its sibling must not decide in which order.
            is_right = bool(self._stack) and self._tree.merged(self._stack[-1], leaf) is not None
            self._adding = is_only and is_right
            self._merges = push(self._tree, self._stack, leaf) - int(self._adding)
        else:
            self._adding, self._merges = bool(self._sums), 0
        if not self._adding:
            fresh = self.buffer()
            self.tail(fresh).zero_()
            self._sums.append(fresh)

    def _close(self) -> None:
        if not all(self._seen):
            for index in [index for index, seen in enumerate(self._seen) if not seen]:
                if not self._adding:
                    self._targets[0][index].zero_()
                self._complete(index)
        completed = len(self._targets) - 1
        self._targets = []
        if completed:
            self._free += self._sums[-completed:]
            del self._sums[-completed:]

    def _complete(self, index: int) -> None:
        """Parameter `index` has its sum of this rank: add it to the nodes that this completes."""
        for inner, outer in pairwise(self._targets):
            outer[index].add_(inner[index])
        if self._is_last and self._on_final is not None:
            self._on_final(index)

    def _hook(self, index: int) -> Callable[[torch.Tensor], None]:
        def move(parameter: torch.Tensor) -> None:
            gradient = parameter.grad
            parameter.grad = None
            if not self._targets or gradient is None:
                return  # a backward pass outside of a step, e.g. a warm-up: nothing to keep
            if gradient.is_sparse:
                gradient = gradient.to_dense()
            if self._squares is not None:
                self._squares.add(gradient)
            if self._adding:
                self._targets[0][index].add_(gradient)
            else:
                self._targets[0][index].copy_(gradient)
            self._seen[index] = 1
            self._complete(index)

        return move

    def _views_of(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        views = self._views.get(buffer.data_ptr())
        if views is None:
            parts = torch.split(buffer[: self.elements], self.sizes)
            views = [part[: p.numel()].view(p.shape) for part, p in zip(parts, self.parameters, strict=True)]
            self._views[buffer.data_ptr()] = views
        return views
