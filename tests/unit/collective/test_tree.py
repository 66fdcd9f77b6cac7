from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.collective.tree import RankRange, ReductionTree, TreeNode, split_ranks


def oracle(values: list[np.float32], start: int, size: int) -> np.float32:
    """The definition: left + right, left alone where the right half has no ranks."""
    if size == 1:
        return values[start]
    half = size // 2
    left = oracle(values, start, half)
    return left if start + half >= len(values) else np.float32(left + oracle(values, start + half, half))


def reduced(values: list[np.float32], counts: list[int]) -> np.float32:
    """Computes as the workers do: each its own nodes, then the remaining sums over all of them."""
    tree = ReductionTree(len(values))
    nodes = [node for share in split_ranks(counts) for node in tree.cover(share)]
    rows = [oracle(values, node.start, node.size) for node in nodes]
    for into, row in tree.plan_additions(nodes):
        rows[into] = np.float32(rows[into] + rows[row])
    return rows[0]


@st.composite
def values_and_splits(draw: st.DrawFn) -> tuple[list[np.float32], list[int]]:
    ranks = draw(st.integers(1, 40))
    cuts = draw(st.sets(st.integers(1, ranks - 1), max_size=8)) if ranks > 1 else set()
    edges = [0, *sorted(cuts), ranks]
    numbers = draw(st.lists(st.floats(-1e3, 1e3, width=32), min_size=ranks, max_size=ranks))
    return [np.float32(number) for number in numbers], [b - a for a, b in pairwise(edges)]


@given(values_and_splits())
def test_the_bits_do_not_depend_on_how_work_is_divided(case: tuple[list[np.float32], list[int]]) -> None:
    values, counts = case
    size = 1 << (len(values) - 1).bit_length()

    assert reduced(values, counts).tobytes() == oracle(values, 0, size).tobytes()


def test_aligned_shares_have_one_node_each() -> None:
    tree = ReductionTree(8)

    assert [tree.cover(share) for share in split_ranks([4, 4])] == [[TreeNode(0, 8 // 2)], [TreeNode(4, 4)]]


def test_uneven_shares_have_few_nodes() -> None:
    tree = ReductionTree(8)

    assert [len(tree.cover(share)) for share in split_ranks([3, 3, 2])] == [2, 2, 1]


def test_the_last_node_of_an_odd_world_grows_to_meet_its_sibling() -> None:
    assert ReductionTree(5).cover(RankRange(0, 5)) == [TreeNode(0, 8)]
