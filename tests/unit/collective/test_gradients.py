from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from elasticdl.collective.gradients import GradientBuffers
from elasticdl.collective.squared_norms import SquaredNorms
from elasticdl.collective.tree import RankRange, ReductionTree, split_ranks
from elasticdl.errors import ElasticDLError
from tests.properties import examples

TAIL = 3


class Model(nn.Module):
    """One parameter is used by odd ranks only, one by none."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator).to(dtype))

        self.used, self.odd, self.unused = parameter(5, 3), parameter(3), parameter(2)
        self.frozen = nn.Parameter(torch.ones(3, dtype=dtype), requires_grad=False)

    def loss(self, rank: int) -> torch.Tensor:
        x = torch.randn(5, generator=torch.Generator().manual_seed(100 + rank)).to(self.used.dtype)
        out = (x @ self.used * self.frozen).tanh()
        return (out + self.odd * out if rank % 2 else out).pow(2).mean()


def leaf(model: Model, rank: int, weight: float) -> list[torch.Tensor]:
    used = [model.used, model.odd, model.unused]
    gradients = torch.autograd.grad(model.loss(rank) * weight, used, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(used, gradients, strict=True)]


def tree_sum(leaves: list[Any], start: int, size: int) -> Any:
    """The definition: left + right, left alone where the right half has no ranks."""
    if size == 1:
        return leaves[start]
    half = size // 2
    left = tree_sum(leaves, start, half)
    if start + half >= len(leaves):
        return left
    return [a + b for a, b in zip(left, tree_sum(leaves, start + half, half), strict=True)]


def compute(gradients: GradientBuffers, model: Model, share: RankRange, skipped: frozenset[int] = frozenset()) -> None:
    gradients.start_update(share)
    for rank in range(share.first, share.stop):
        if rank in skipped:
            gradients.skip(rank)
        else:
            gradients.backward(model.loss(rank), rank, 1 / (rank + 1))


def finished(tree: ReductionTree, counts: list[int], skipped: frozenset[int], dtype: torch.dtype) -> torch.Tensor:
    """Runs the workers one after the other, then the remaining sums of the tree over all their nodes."""
    rows, nodes = [], []
    for share in split_ranks(counts):
        model = Model(dtype)
        gradients = GradientBuffers(model.parameters(), tree, TAIL, ordered=True).register_hooks()
        compute(gradients, model, share, skipped)
        assert gradients.dtype == dtype
        rows += [buffer.clone() for buffer in gradients.node_sums()]
        nodes += gradients.share_nodes(share)
    for into, row in tree.plan_additions(nodes):
        rows[into] += rows[row]
    return rows[0]


@st.composite
def splits(draw: st.DrawFn) -> tuple[int, list[int], frozenset[int]]:
    ranks = draw(st.integers(1, 11))
    cuts = draw(st.sets(st.integers(1, ranks - 1), max_size=5)) if ranks > 1 else set()
    edges = [0, *sorted(cuts), ranks]
    skipped = draw(st.frozensets(st.integers(0, ranks - 1), max_size=2))
    return ranks, [b - a for a, b in pairwise(edges)], skipped


@settings(max_examples=examples(40))
@given(splits(), st.sampled_from([torch.float32, torch.float64]))
def test_any_split_gives_the_bits_of_the_definition(
    case: tuple[int, list[int], frozenset[int]], dtype: torch.dtype
) -> None:
    ranks, counts, skipped = case
    model, tree = Model(dtype), ReductionTree(ranks)
    zeros = [torch.zeros_like(p) for p in (model.used, model.odd, model.unused)]
    leaves = [zeros if rank in skipped else leaf(model, rank, 1 / (rank + 1)) for rank in range(ranks)]
    expected = tree_sum(leaves, 0, 1 << (ranks - 1).bit_length())

    reduced = finished(tree, counts, skipped, dtype)

    holder = GradientBuffers(model.parameters(), tree, TAIL, ordered=True).register_hooks()
    holder.install(reduced)
    for parameter, value in zip((model.used, model.odd, model.unused), expected, strict=True):
        assert parameter.grad is not None and torch.equal(parameter.grad, value)


@settings(max_examples=examples(30))
@given(splits(), st.integers(2, 3))
def test_passes_of_a_rank_are_added_first_and_then_the_tree(
    case: tuple[int, list[int], frozenset[int]], passes: int
) -> None:
    ranks, counts, skipped = case  # a skipped rank has no records in the first pass
    tree, model = ReductionTree(ranks), Model()
    zeros = [torch.zeros_like(p) for p in (model.used, model.odd, model.unused)]
    leaves = []
    for rank in range(ranks):
        parts = [zeros if rank in skipped else leaf(model, rank, 0.5)]
        parts += [leaf(model, rank + number, 0.5) for number in range(1, passes)]
        total = parts[0]
        for part in parts[1:]:
            total = [a + b for a, b in zip(total, part, strict=True)]
        leaves.append(total)
    expected = tree_sum(leaves, 0, 1 << (ranks - 1).bit_length())
    rows, nodes = [], []
    for share in split_ranks(counts):
        model = Model()
        gradients = GradientBuffers(model.parameters(), tree, TAIL, ordered=True).register_hooks()
        final_parameters: list[int] = []
        gradients.start_update(share, final_parameters.append)
        for rank in range(share.first, share.stop):
            if rank in skipped:
                gradients.skip(rank, is_last=passes == 1)
            else:
                gradients.backward(model.loss(rank), rank, 0.5, is_last=passes == 1)
            for number in range(1, passes):
                assert final_parameters == [], "nothing is final before the last pass"
                gradients.backward(model.loss(rank + number), rank, 0.5, is_first=False, is_last=number == passes - 1)
        assert sorted(final_parameters) == ([0, 1, 2] if len(gradients.node_sums()) == 1 else [])
        rows += [buffer.clone() for buffer in gradients.node_sums()]
        nodes += gradients.share_nodes(share)
    for into, row in tree.plan_additions(nodes):
        rows[into] += rows[row]

    gradients.install(rows[0])
    for parameter, value in zip((model.used, model.odd, model.unused), expected, strict=True):
        assert parameter.grad is not None and torch.equal(parameter.grad, value)


def test_parameters_that_need_no_gradient_are_left_out() -> None:
    model = Model()
    gradients = GradientBuffers(model.parameters(), ReductionTree(1), TAIL, ordered=True).register_hooks()

    assert len(gradients.parameters) == 3
    assert gradients.length == gradients.elements + TAIL


def test_a_step_begins_with_an_empty_tail_though_buffers_are_used_again() -> None:
    model = Model()
    gradients = GradientBuffers(model.parameters(), ReductionTree(2), TAIL, ordered=True).register_hooks()
    compute(gradients, model, RankRange(0, 2))
    gradients.tail(gradients.node_sums()[0]).fill_(9.0)
    first = gradients.flat(gradients.node_sums()[0]).clone()

    compute(gradients, model, RankRange(0, 2))

    assert gradients.tail(gradients.node_sums()[0]).tolist() == [0.0] * TAIL
    assert torch.equal(gradients.flat(gradients.node_sums()[0]), first)


def test_an_aborted_step_leaves_nothing_behind() -> None:
    model = Model()
    gradients = GradientBuffers(model.parameters(), ReductionTree(4), TAIL, ordered=True).register_hooks()
    compute(gradients, model, RankRange(0, 4))
    expected = gradients.flat(gradients.node_sums()[0]).clone()
    gradients.start_update(RankRange(0, 4))
    gradients.backward(model.loss(3), 0, 5.0)
    gradients.backward(model.loss(2), 1, 5.0)

    compute(gradients, model, RankRange(0, 4))

    assert torch.equal(gradients.flat(gradients.node_sums()[0]), expected)


def test_no_gradient_is_kept_on_the_parameters() -> None:
    model = Model()
    gradients = GradientBuffers(model.parameters(), ReductionTree(2), TAIL, ordered=True).register_hooks()
    compute(gradients, model, RankRange(0, 2))

    assert all(parameter.grad is None for parameter in model.parameters())


def test_each_parameter_is_reported_once_when_its_sum_is_final() -> None:
    model = Model()
    gradients = GradientBuffers(model.parameters(), ReductionTree(4), TAIL, ordered=True).register_hooks()
    final_parameters: list[int] = []
    gradients.start_update(RankRange(0, 4), final_parameters.append)
    for rank in range(3):
        gradients.backward(model.loss(rank), rank, 1.0)
    before = list(final_parameters)
    gradients.backward(model.loss(3), 3, 1.0)

    assert before == []
    assert sorted(final_parameters) == [0, 1, 2]


def test_no_parameter_is_reported_if_a_share_has_more_than_one_node() -> None:
    model = Model()
    gradients = GradientBuffers(model.parameters(), ReductionTree(4), TAIL, ordered=True).register_hooks()
    final_parameters: list[int] = []
    gradients.start_update(RankRange(0, 3), final_parameters.append)
    for rank in range(3):
        gradients.backward(model.loss(rank), rank, 1.0)

    assert final_parameters == []
    assert len(gradients.node_sums()) == 2


def test_without_order_a_worker_has_one_sum() -> None:
    model = Model()
    gradients = GradientBuffers(model.parameters(), ReductionTree(7), TAIL, ordered=False).register_hooks()
    compute(gradients, model, RankRange(1, 5))
    gradients.install(gradients.node_sums()[0])
    expected = sum(leaf(model, rank, 1 / (rank + 1))[0] for rank in range(1, 6))

    assert len(gradients.node_sums()) == 1
    torch.testing.assert_close(model.used.grad, expected)


def test_without_order_passes_are_added_as_they_arrive() -> None:
    model = Model()
    gradients = GradientBuffers(model.parameters(), ReductionTree(3), TAIL, ordered=False).register_hooks()
    gradients.start_update(RankRange(0, 2))
    for rank in range(2):
        gradients.backward(model.loss(rank), rank, 0.5, is_last=False)
        gradients.backward(model.loss(rank + 2), rank, 0.5, is_first=False)
    gradients.install(gradients.node_sums()[0])
    expected = sum(leaf(model, rank, 0.5)[0] for rank in range(4))

    assert len(gradients.node_sums()) == 1
    torch.testing.assert_close(model.used.grad, expected)


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_a_sparse_gradient_is_summed_like_any_other(weight: float) -> None:
    table = nn.Embedding(6, 2, sparse=True)
    gradients = GradientBuffers(table.parameters(), ReductionTree(2), TAIL, ordered=True).register_hooks()
    gradients.start_update(RankRange(0, 2))
    for rank in range(2):
        gradients.backward(table(torch.tensor([rank, 3])).sum(), rank, weight)
    gradients.install(gradients.node_sums()[0])

    assert table.weight.grad is not None
    assert table.weight.grad[:, 0].tolist() == [weight, weight, 0, 2 * weight, 0, 0]


def test_gradients_that_the_script_changed_are_collected_and_installed_elsewhere() -> None:
    models = [Model(), Model()]
    source, target = (
        GradientBuffers(model.parameters(), ReductionTree(1), TAIL, ordered=True).register_hooks() for model in models
    )
    source.start_update(RankRange(0, 1))
    source.backward(models[0].loss(0), 0, 1.0)
    reduced = source.node_sums()[0]
    source.install(reduced, [bool(is_touched) for is_touched in source.touched])
    assert models[0].used.grad is not None and models[0].odd.grad is None
    models[0].used.grad.mul_(2.0)  # in place, as clipping does
    models[0].unused.grad = torch.full_like(models[0].unused, 3.0)  # a new tensor, as a script may assign

    touched = source.collect(reduced)
    buffer = target.acquire()
    target.flat(buffer).copy_(source.flat(reduced))
    target.install(buffer, touched)

    assert touched == [True, False, True]
    assert models[1].used.grad is not None and torch.equal(models[1].used.grad, models[0].used.grad)
    assert models[1].odd.grad is None
    assert models[1].unused.grad is not None and models[1].unused.grad.tolist() == [3.0, 3.0]


def test_a_backward_pass_of_the_script_adds_to_whole_gradients() -> None:
    model = Model()
    gradients = GradientBuffers(model.parameters(), ReductionTree(1), TAIL, ordered=True, warns=True).register_hooks()
    gradients.start_update(RankRange(0, 1))
    gradients.backward(model.loss(0), 0, 1.0)
    gradients.install(gradients.node_sums()[0])
    assert model.used.grad is not None
    before = model.used.grad.clone()

    model.used.sum().backward()

    assert torch.equal(model.used.grad, before + 1)


def test_a_backward_pass_of_the_script_while_gradients_are_computed_is_an_error() -> None:
    model = Model()
    gradients = GradientBuffers(model.parameters(), ReductionTree(1), TAIL, ordered=True, warns=True).register_hooks()
    gradients.start_update(RankRange(0, 1))

    with pytest.raises(ElasticDLError, match=r"step.backward\(loss\)"):
        model.loss(0).backward()


def test_the_squares_of_complex_gradients_are_those_of_their_parts() -> None:
    parameter = nn.Parameter(torch.tensor([1 + 2j, 3 - 1j]))
    squares = SquaredNorms()
    squares.is_on = True
    gradients = GradientBuffers([parameter], ReductionTree(1), TAIL, ordered=True, squares=squares).register_hooks()
    gradients.start_update(RankRange(0, 1))

    gradients.backward((parameter * torch.tensor([2 + 1j, 1 - 1j])).real.sum(), 0, 1.0)

    assert float(squares.by_rank[0]) == pytest.approx(5 + 2)
