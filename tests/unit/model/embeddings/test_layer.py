from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elasticdl.errors import ModelError
from tests import native

native.require()

from elasticdl.model.embeddings.layers import Embedding, EmbeddingBag, TableLayer  # noqa: E402
from elasticdl.model.embeddings.row_sources import TrainingRows  # noqa: E402
from elasticdl.ps.client.local_tables import LocalTables  # noqa: E402
from elasticdl.ps.client.lookups import EmbeddingLookups  # noqa: E402
from elasticdl.ps.tables.optimizer import Optimizer  # noqa: E402

ROWS, COLUMNS = 12, 3


def attach(layer: TableLayer, weight: Tensor, rule: str = "sgd") -> EmbeddingLookups:
    """Let a layer train rows that begin as `weight`."""
    layer.table = "words"
    tables = LocalTables(seed=1)
    tables.declare([layer.table_spec(Optimizer(rule=rule))])  # type: ignore[arg-type]
    tables.insert_rows("words", np.arange(len(weight)), weight.detach().numpy())
    lookups = EmbeddingLookups(tables, depth=0)
    source = TrainingRows(lookups)
    source.creates = True
    layer.attach_source(source)
    return lookups


def rows_of(lookups: EmbeddingLookups) -> Tensor:
    assert isinstance(lookups.client, LocalTables)
    ids, rows = lookups.client.read_table("words")
    return torch.from_numpy(rows[np.argsort(ids)])


def close(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left, right, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("rule", "kind"), [("sgd", torch.optim.SGD), ("adagrad", torch.optim.Adagrad)])
def test_a_layer_trains_like_a_plain_embedding(rule: str, kind: Any) -> None:
    torch.manual_seed(0)
    plain = nn.Embedding(ROWS, COLUMNS)
    layer = Embedding(COLUMNS)
    lookups = attach(layer, plain.weight, rule)
    optimizer = kind(plain.parameters(), lr=0.1)

    for step in range(20):
        ids = torch.randint(0, ROWS, (4, 5))
        target = torch.randn(4, 5, COLUMNS)
        optimizer.zero_grad()
        (plain(ids) - target).square().mean().backward()
        optimizer.step()
        lookups.begin_batch()
        (layer(ids) - target).square().mean().backward()
        lookups.push_gradients(sender=0, number=step + 1, rate=0.1, step=step + 1)

    assert close(rows_of(lookups), plain.weight)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("padding", [None, 3])
def test_bags_equal_those_of_a_plain_embedding_bag(mode: Any, padding: int | None) -> None:
    torch.manual_seed(0)
    plain = nn.EmbeddingBag(ROWS, COLUMNS, mode=mode, padding_idx=padding)
    layer = EmbeddingBag(COLUMNS, combiner=mode, padding_idx=padding)
    lookups = attach(layer, plain.weight)
    values, offsets = torch.tensor([1, 3, 3, 5, 7, 3, 1]), torch.tensor([0, 2, 2, 5])
    optimizer = torch.optim.SGD(plain.parameters(), lr=1.0)

    plain(values, offsets).square().sum().backward()
    optimizer.step()
    lookups.begin_batch()
    bags = layer((values, offsets))
    bags.square().sum().backward()
    lookups.push_gradients(sender=0, number=1, rate=1.0, step=1)

    assert bags.shape == (4, COLUMNS) and not bags[1].any(), "a bag without ids is zeros"
    assert close(rows_of(lookups), plain.weight)


def test_dense_ragged_and_jagged_ids_give_the_same_bags() -> None:
    layer = EmbeddingBag(COLUMNS, combiner="sqrtn")
    attach(layer, torch.randn(ROWS, COLUMNS))
    dense = torch.tensor([[1, 2], [3, 4]])
    jagged = torch.nested.nested_tensor([torch.tensor([1, 2]), torch.tensor([3, 4])], layout=torch.jagged)

    bags = layer(dense)

    assert close(layer(dense.reshape(-1), torch.tensor([0, 2])), bags)
    assert close(layer(jagged), bags)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_weighted_bags_are_divided_by_their_weights(combiner: Any) -> None:
    layer = EmbeddingBag(COLUMNS, combiner=combiner)
    weight = torch.randn(ROWS, COLUMNS)
    attach(layer, weight)
    weights = torch.tensor([[2.0, 3.0]])
    divisor = {"sum": 1.0, "mean": 5.0, "sqrtn": 13.0**0.5}[combiner]

    bags = layer(torch.tensor([[1, 2]]), per_sample_weights=weights)

    assert close(bags[0], (2 * weight[1] + 3 * weight[2]) / divisor)


def test_padding_is_zero_and_not_trained() -> None:
    layer = Embedding(COLUMNS, padding_idx=0)
    lookups = attach(layer, torch.ones(2, COLUMNS))
    lookups.begin_batch()

    embedded = layer(torch.tensor([0, 1]))
    embedded.sum().backward()
    lookups.push_gradients(sender=0, number=1, rate=1.0, step=1)

    assert not embedded[0].any() and embedded[1].all()
    assert close(rows_of(lookups), torch.tensor([[1.0] * COLUMNS, [0.0] * COLUMNS]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_any_integer_dtype_is_an_id(dtype: torch.dtype) -> None:
    ids = torch.tensor([-(2**31), -1, 2**31 - 1], dtype=dtype)

    assert Embedding(COLUMNS)(ids).shape == (3, COLUMNS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_ids_of_another_type_are_refused_by_the_name_of_the_layer(dtype: torch.dtype) -> None:
    layer = Embedding(COLUMNS, name="words")

    with pytest.raises(
        ModelError, match=rf"Embedding words: expected ids as int64 or int32. Received: {dtype}".replace("torch.", "")
    ):
        layer(torch.zeros(2, 2, dtype=dtype))


def test_ids_beyond_a_table_of_known_size_are_refused() -> None:
    layer = Embedding(COLUMNS, name="words", input_dim=5)

    with pytest.raises(ModelError, match=r"Embedding words: expected ids from 0 to 4. Received: ids from -1 to 5"):
        layer(torch.tensor([-1, 2, 5]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_norm": 1.0}, "no max_norm with rows"),
        ({"initializer": "orthogonal"}, "expected an initializer. Received: 'orthogonal'"),
        ({"initializer": {"kind": "normal", "stddev": 1.0}}, "expected an initializer. Received: .*stddev"),
        ({"optimizer": "adadelta"}, "expected optimizer as one of sgd, .*'adadelta'"),
        ({"optimizer": Optimizer(rule="sgd", learning_rate=0.1)}, "learning rate of the model's optimizer"),
    ],
)
def test_options_that_a_ps_does_not_support_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Embedding(COLUMNS, **options)


def test_rows_are_not_parameters_and_cannot_be_trained_outside_of_a_job() -> None:
    layer = Embedding(COLUMNS, name="words")

    assert list(layer.parameters()) == [] and layer.state_dict() == {}
    with pytest.raises(ModelError, match=r"outside of one; use elasticdl.torch.join"):
        layer(torch.tensor([1])).sum().backward()


def test_a_layer_with_loaded_rows_needs_no_ps_and_can_be_exported() -> None:
    layer = EmbeddingBag(COLUMNS, combiner="mean", padding_idx=0)
    layer.store_rows(np.array([7, -3]), np.array([[1.0] * COLUMNS, [2.0] * COLUMNS], np.float32))
    ids = torch.tensor([[7, -3, 0], [5, 0, 0], [7, 7, 0]])

    program = torch.export.export(layer, (ids,), dynamic_shapes=({0: torch.export.Dim.AUTO},))

    expected = torch.tensor([[1.5] * COLUMNS, [0.0] * COLUMNS, [1.0] * COLUMNS])
    assert close(layer(ids), expected)
    assert close(program.module()(torch.cat([ids, ids]))[3:], expected)
