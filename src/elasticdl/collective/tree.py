"""The fixed binary tree over logical ranks, which says what sums are made in what order.

A node covers the logical ranks [start, start + size) that exist; size is a power of two
and start a multiple of it. Its value is left + right, or left alone if the right half
has no ranks. The root's value does not depend on who computed which node, so the reduced
gradient has the same bits for any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class TreeNode(NamedTuple):
    """The sum over the logical ranks [start, start + size)."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class RankRange:
    """The contiguous logical ranks one worker computes."""

    first: int
    count: int

    @property
    def stop(self) -> int:
        return self.first + self.count

    def __contains__(self, logical_rank: int) -> bool:
        return self.first <= logical_rank < self.stop


class ReductionTree:
    """The tree over a number of logical ranks."""

    def __init__(self, logical_ranks: int) -> None:
        self.logical_ranks = logical_ranks

    def climb(self, node: TreeNode) -> TreeNode:
        """The highest ancestor with the same value: climb while the right sibling has no ranks."""
        ranks = self.logical_ranks
        while node.size < ranks <= node.start + node.size and node.start % (2 * node.size) == 0:
            node = TreeNode(node.start, 2 * node.size)
        return node

    def find_parent(self, left: TreeNode, right: TreeNode) -> TreeNode | None:
        """The parent of two siblings; None if they are no siblings."""
        if left.size == right.size and left.start % (2 * left.size) == 0 and left.start + left.size == right.start:
            return self.climb(TreeNode(left.start, 2 * left.size))
        return None

    def cover(self, share: RankRange) -> list[TreeNode]:
        """The fewest nodes that cover exactly a share, in order."""
        stack: list[TreeNode] = []
        for rank in range(share.first, share.stop):
            push_node(self, stack, self.climb(TreeNode(rank, 1)))
        return stack

    def plan_additions(self, nodes: Sequence[TreeNode]) -> list[tuple[int, int]]:
        """How to finish the tree over all workers' nodes: additions `row[i] += row[j]`, in order, ending in row 0."""
        additions: list[tuple[int, int]] = []
        stack: list[tuple[TreeNode, int]] = []
        for row, node in enumerate(nodes):
            top, top_row = node, row
            while stack and (parent := self.find_parent(stack[-1][0], top)):
                _, left_row = stack.pop()
                additions.append((left_row, top_row))
                top, top_row = parent, left_row
            stack.append((top, top_row))
        assert len(stack) == 1, f"the nodes {list(nodes)} do not cover {self.logical_ranks} logical ranks"
        return additions


def push_node(tree: ReductionTree, stack: list[TreeNode], node: TreeNode) -> int:
    """Put a node on a worker's stack; returns how many pairs were merged because of it."""
    merges = 0
    while stack and (parent := tree.find_parent(stack[-1], node)):
        stack.pop()
        node = parent
        merges += 1
    stack.append(node)
    return merges


def split_ranks(counts: Iterable[int]) -> list[RankRange]:
    """Contiguous shares of the given sizes."""
    result: list[RankRange] = []
    first = 0
    for count in counts:
        result.append(RankRange(first, count))
        first += count
    return result
