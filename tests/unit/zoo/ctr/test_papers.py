"""The parts of click models against their formulas, written as plain loops."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from elasticdl.ctr.models.autoint import InteractingLayer
from elasticdl.ctr.models.dcn import CrossNetwork
from elasticdl.ctr.models.dcn_v2 import CrossNetworkV2
from elasticdl.ctr.models.din import TargetAttention
from elasticdl.ctr.models.finalmlp import BilinearFusion
from elasticdl.ctr.models.layers import masked_mean, pairwise_products
from elasticdl.ctr.models.xdeepfm import CIN
from elasticdl.errors import ModelError

ROWS, FIELDS, COLUMNS = 3, 4, 5


def fields() -> torch.Tensor:
    return torch.randn(ROWS, FIELDS, COLUMNS)


def test_the_pair_term_is_the_sum_over_all_pairs() -> None:
    x = fields()

    naive = sum((x[:, i] * x[:, j] for i, j in itertools.combinations(range(FIELDS), 2)), torch.zeros(ROWS, COLUMNS))

    torch.testing.assert_close(pairwise_products(x), naive)


def test_the_compressed_interactions_are_those_of_the_paper() -> None:
    x, sizes = fields(), (3, 2)
    cin = CIN(FIELDS, sizes)

    maps, outputs = x, []
    for layer, size in zip(cin.layers, sizes, strict=True):
        weight, bias = layer.get_parameter("weight").view(size, maps.shape[1], FIELDS), layer.get_parameter("bias")
        new = torch.zeros(ROWS, size, COLUMNS)
        for h, i, j in itertools.product(range(size), range(maps.shape[1]), range(FIELDS)):
            new[:, h] += weight[h, i, j] * maps[:, i] * x[:, j]
        maps = torch.relu(new + bias.view(1, -1, 1))
        outputs.append(maps.sum(dim=2))

    torch.testing.assert_close(cin(x), torch.cat(outputs, dim=1))


def test_a_cross_layer_is_the_outer_product_times_a_vector() -> None:
    x = torch.randn(ROWS, COLUMNS)
    cross = CrossNetwork(COLUMNS, 2)

    for row, crossed in zip(x, cross(x), strict=True):
        now = row
        for weight, bias in zip(cross.weights, cross.biases, strict=True):
            now = torch.outer(row, now) @ weight + bias + now
        torch.testing.assert_close(crossed, now)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_cross_layer_of_the_second_kind_has_a_matrix(rank: int) -> None:
    x = torch.randn(ROWS, COLUMNS)
    cross = CrossNetworkV2(COLUMNS, 1, rank)

    layer: Any = cross.layers[0]
    matrix = layer[1].weight @ layer[0].weight if rank else layer.weight
    bias = layer[1].bias if rank else layer.bias

    for row, crossed in zip(x, cross(x), strict=True):
        torch.testing.assert_close(crossed, row * (matrix @ row + bias) + row)


def test_fields_attend_to_each_other_head_by_head() -> None:
    x, size, heads = fields(), 3, 2
    layer = InteractingLayer(COLUMNS, size, heads)

    query, key, value = layer.projections.weight.view(3, heads, size, COLUMNS)
    terms = []
    for h in range(heads):
        scores = torch.softmax((x @ query[h].T) @ (x @ key[h].T).transpose(1, 2), dim=2)
        terms.append(scores @ (x @ value[h].T))

    torch.testing.assert_close(layer(x), torch.relu(torch.cat(terms, dim=2) + layer.residual(x)))


def test_the_fusion_of_two_streams_is_a_sum_of_bilinear_forms() -> None:
    a, b, heads = torch.randn(ROWS, 4), torch.randn(ROWS, 6), 2
    fusion = BilinearFusion(4, 6, heads)

    joined = sum(
        (a[:, 2 * h : 2 * h + 2] @ fusion.products[h] * b[:, 3 * h : 3 * h + 3]).sum(dim=1) for h in range(heads)
    )

    torch.testing.assert_close(fusion(a, b), fusion.first(a)[:, 0] + fusion.second(b)[:, 0] + joined)


def test_heads_that_do_not_divide_the_sizes_are_refused() -> None:
    with pytest.raises(ModelError, match="multiples of heads=3"):
        BilinearFusion(4, 6, 3)


def test_attention_does_not_see_padding() -> None:
    attention = TargetAttention(COLUMNS, (4,))
    rows, target = fields(), torch.randn(ROWS, COLUMNS)
    is_there = torch.tensor([[True, True, False, False]] * ROWS)
    changed_rows = rows.clone()
    changed_rows[:, 2:] = 100.0

    torch.testing.assert_close(attention(rows, target, is_there), attention(changed_rows, target, is_there))
    torch.testing.assert_close(attention(rows, target, is_there), attention(rows[:, :2], target, is_there[:, :2]))


def test_the_mean_of_nothing_is_zeros() -> None:
    is_there = torch.tensor([[True, False], [False, False]])
    rows = torch.tensor([[[2.0], [9.0]], [[3.0], [4.0]]])

    assert masked_mean(rows, is_there).tolist() == [[2.0], [0.0]]
