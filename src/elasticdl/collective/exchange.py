"""All-reduces a step's gradients over the members of a round, while they are still being computed.

The buffer is divided into parts. The exchange of a part begins as soon as the last backward pass of a worker has
completed it; parts are exchanged in one fixed order, the last parameters first. One member sums each element in the
order of the tree and sends it to all: a reduce-scatter of the members' nodes and an all-gather of the results. If the
order cannot matter (one node each of two members: a + b = b + a), the two members swap their nodes. If the order need
not be kept, NCCL sums by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from elasticdl.collective.gradients import GradientBuffers
from elasticdl.collective.group import Group, NcclGroup
from elasticdl.collective.tree import RankRange, ReductionTree
from elasticdl.errors import RoundBroken

_PART_BYTES = 1 << 20
_MAX_PARTS = 8

FinishParts = Callable[[], None]
StartedPart = Callable[[], FinishParts]  # first all parts are summed by their owners, then sent to all


class GradientExchange:
    """The all-reduce of one round: made once for the round, used for each of its steps."""

    def __init__(
        self,
        group: Group,
        gradients: GradientBuffers,
        tree: ReductionTree,
        shares: Sequence[RankRange],
        *,
        ordered: bool,
    ) -> None:
        self.group = group
        self._gradients = gradients
        nodes = [gradients.share_nodes(share) for share in shares]
        self._rows = [len(own) for own in nodes]
        is_swap = group.size <= 2 and max(self._rows) == 1
        self._is_plain = is_swap or (not ordered and isinstance(group, NcclGroup))
        rows = [node for own in nodes for node in own]
        self._additions = tree.plan_additions(rows) if ordered else [(0, row) for row in range(1, len(rows))]
        self._share = shares[group.rank]
        self._parts = _split_parts(gradients)
        self._part_of = [part for part, (_, _, count) in enumerate(self._parts) for _ in range(count)][::-1]
        self._missing: list[int] = []
        self._begun: list[StartedPart] = []
        self._failure: RoundBroken | None = None

    def start_step(self) -> None:
        """A step begins."""
        self._missing = [count for _, _, count in self._parts]
        self._begun, self._failure = [], None
        overlaps = self.group.size > 1 and self._gradients.device == self.group.device
        self._gradients.start_update(self._share, self._on_final_gradient if overlaps else None)

    def reduce(self) -> torch.Tensor:
        """The sum over all logical ranks, in a buffer of the gradients. Raises RoundBroken."""
        sums = self._gradients.node_sums()
        if self.group.size == 1:
            self.group.check()
            return sums[0]
        staged = [buffer.to(self.group.device) for buffer in sums]
        for start, stop, _ in self._parts[len(self._begun) :]:
            self._start_part(staged, start, stop)
        self._start_part(staged, self._gradients.elements, self._gradients.length)
        if self._failure is not None:
            raise self._failure
        for finish in [finish() for finish in self._begun]:
            finish()
        if staged[0] is not sums[0]:
            sums[0].copy_(staged[0])
        return sums[0]

    def _on_final_gradient(self, index: int) -> None:
        """Parameter `index` has its sum: begin the parts that are complete, in their order."""
        self._missing[self._part_of[index]] -= 1
        while self._failure is None and len(self._begun) < len(self._parts) and self._missing[len(self._begun)] == 0:
            start, stop, _ = self._parts[len(self._begun)]
            # The share is one node, the first sum: the later buffers are added to it, and are not freed yet.
            self._start_part(self._gradients.node_sums()[:1], start, stop)

    def _start_part(self, sums: Sequence[torch.Tensor], start: int, stop: int) -> None:
        if self._failure is not None:
            return
        try:
            if self._is_plain:
                self._begun.append(self._start_plain(sums[0][start:stop]))
            elif isinstance(self.group, NcclGroup):
                self._begun.append(self._start_packed_tree(self.group, sums, start, stop))
            else:
                self._begun.append(self._start_tree(sums, start, stop))
        except RoundBroken as exc:
            self._failure = exc  # raised by `reduce`: an error must not leave a backward pass half done

    def _start_plain(self, mine: torch.Tensor) -> StartedPart:
        if isinstance(self.group, NcclGroup):
            work = self.group.start_allreduce(mine)
            return lambda: lambda: self.group.wait(work)
        theirs = torch.empty_like(mine)
        swap = self.group.start_swap(mine, theirs)

        def add() -> None:
            self.group.wait(swap)
            mine.add_(theirs)

        return lambda: add

    def _start_tree(self, sums: Sequence[torch.Tensor], start: int, stop: int) -> StartedPart:
        """Send chunk c of all nodes to member c, which sums it in place and sends the sum to all. No copies."""
        rank, others = self.group.rank, self.group.others
        bounds = [start + (stop - start) * member // self.group.size for member in range(self.group.size + 1)]
        own = slice(bounds[rank], bounds[rank + 1])
        received = {member: [torch.empty_like(sums[0][own]) for _ in range(self._rows[member])] for member in others}
        nodes = received | {rank: [buffer[own] for buffer in sums]}
        work = self.group.start(
            [(member, buffer[bounds[member] : bounds[member + 1]]) for member in others for buffer in sums],
            [(member, node) for member in others for node in received[member]],
        )

        def finish() -> FinishParts:
            self.group.wait(work)
            rows = [node for member in range(self.group.size) for node in nodes[member]]
            for into, row in self._additions:
                rows[into] += rows[row]
            finished = sums[0][own]
            if rank:
                finished.copy_(rows[0])
            gathering = self.group.start(
                [(member, finished) for member in others],
                [(member, sums[0][bounds[member] : bounds[member + 1]]) for member in others],
            )
            return lambda: self.group.wait(gathering)

        return finish

    def _start_packed_tree(self, group: NcclGroup, sums: Sequence[torch.Tensor], start: int, stop: int) -> StartedPart:
        """As `_start_tree`, by the collectives of NCCL, which need one tensor, and chunks of one size."""
        size = group.size
        chunk = -(-(stop - start) // size)
        padded = torch.empty(len(sums), size * chunk, dtype=sums[0].dtype, device=sums[0].device)
        for row, buffer in zip(padded, sums, strict=True):
            row[: stop - start] = buffer[start:stop]
        outgoing = padded.view(len(sums), size, chunk).transpose(0, 1).contiguous().view(-1)
        received = torch.empty(sum(self._rows), chunk, dtype=padded.dtype, device=padded.device)
        work = group.start_alltoall(
            received.view(-1), [rows * chunk for rows in self._rows], outgoing, [len(sums) * chunk] * size
        )

        def finish() -> FinishParts:
            group.wait(work)
            for into, row in self._additions:
                received[into] += received[row]
            summed = padded[0]
            gathering = group.start_allgather(summed, received[0])

            def copy_back() -> None:
                group.wait(gathering)
                sums[0][start:stop] = summed[: stop - start]

            return copy_back

        return finish


def _split_parts(gradients: GradientBuffers) -> list[tuple[int, int, int]]:
    """(start, stop, number of parameters) of each part, in the order of exchange: the last parameters first."""
    bytes_each = torch.empty(0, dtype=gradients.dtype).element_size()
    min_elements = max(_PART_BYTES // bytes_each, gradients.elements // _MAX_PARTS)
    parts: list[tuple[int, int, int]] = []
    stop, count, position = gradients.elements, 0, gradients.elements
    for size in reversed(gradients.sizes):
        position -= size
        count += 1
        if stop - position >= min_elements or position == 0:
            parts.append((position, stop, count))
            stop, count = position, 0
    return parts
