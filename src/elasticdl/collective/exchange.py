"""Finish a step's gradients over all members of a round.

Every element is finished by one member, in the order of the tree, and handed to all: a
reduce-scatter of the members' nodes and an all-gather of the results. Where the order cannot
matter (one node each of two members: a + b = b + a) or need not be kept, gloo's own
all-reduce does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from elasticdl.collective.gradients import Gradients
from elasticdl.collective.group import Group
from elasticdl.collective.tree import Share, Tree


@dataclass(frozen=True, slots=True)
class Exchange:
    """How the members of one round finish the tree; computed once for the round."""

    group: Group
    rows: tuple[int, ...]  # nodes of each member
    additions: tuple[tuple[int, int], ...]
    is_plain: bool

    @classmethod
    def plan(
        cls, group: Group, gradients: Gradients, tree: Tree, shares: Sequence[Share], *, ordered: bool
    ) -> Exchange:
        nodes = [gradients.nodes(share) for share in shares]
        rows = tuple(len(own) for own in nodes)
        if not ordered or (group.size <= 2 and max(rows) == 1):
            return cls(group, rows, (), is_plain=True)
        return cls(group, rows, tuple(tree.finish([node for own in nodes for node in own])), is_plain=False)

    def reduce(self, gradients: Gradients) -> torch.Tensor:
        """The sum over all logical ranks, in a buffer of `gradients`. Raises RoundBroken."""
        sums = gradients.sums()
        if self.group.size == 1:
            return sums[0]
        if self.is_plain:
            self.group.allreduce(sums[0][: gradients.length])
            return sums[0]
        mine = [buffer.to(self.group.device) for buffer in sums]
        chunk = -(-gradients.length // self.group.size)
        received = torch.empty(sum(self.rows), chunk, dtype=gradients.dtype, device=self.group.device)
        self._scatter(mine, received, chunk)
        for into, row in self.additions:
            received[into] += received[row]
        self.group.allgather(mine[0][: chunk * self.group.size], received[0])
        if mine[0] is not sums[0]:
            sums[0].copy_(mine[0])
        return sums[0]

    def _scatter(self, mine: list[torch.Tensor], received: torch.Tensor, chunk: int) -> None:
        """Send chunk c of each of my nodes to member c."""
        size = self.group.size
        if len(mine) == 1:
            outgoing = mine[0][: chunk * size]
        else:
            outgoing = torch.stack([buffer[: chunk * size].view(size, chunk) for buffer in mine], dim=1).view(-1)
        into = [len(mine) * chunk] * size
        self.group.alltoall(received.view(-1), [count * chunk for count in self.rows], outgoing, into)
