"""Training with tables in one process: as if the rows were parameters of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests import native

native.require()

import elasticdl.torch as elastic  # noqa: E402
from elasticdl.checkpoint.captured_state import restore_state  # noqa: E402
from elasticdl.checkpoint.export import export_model, find_weights  # noqa: E402
from elasticdl.data.dataset import Dataset  # noqa: E402
from elasticdl.data.plan import TrainingPlan  # noqa: E402
from elasticdl.data.readers import mapped  # noqa: E402
from elasticdl.model import tensors  # noqa: E402
from elasticdl.model.embeddings.attach import TorchEmbeddingLayers  # noqa: E402
from elasticdl.ps.client.local_tables import LocalTables  # noqa: E402
from elasticdl.worker.embeddings.hybrid import HybridEmbeddingTables, LocalTableStore, TableStore  # noqa: E402
from elasticdl.worker.embeddings.tables import EmbeddingTables, NoTables, restore_rows  # noqa: E402
from elasticdl.worker.local import LocalTraining  # noqa: E402
from elasticdl.worker.training.loop import TrainingSetup  # noqa: E402

WORDS, ITEMS, RECORDS = 50, 20, 240


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, 4, mode="mean", padding_idx=0)
        self.items = nn.Embedding(ITEMS, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        words = self.words(features["words"])
        return self.head(words * self.items(features["items"][:, 0])).squeeze(1)


class Records:
    """A dataset by number."""

    def __init__(self) -> None:
        random = np.random.default_rng(5)
        self._words = random.integers(0, WORDS, (RECORDS, 3))
        self._items = random.integers(0, ITEMS, (RECORDS, 2))
        self._labels = random.normal(size=RECORDS).astype(np.float32)

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, number: int) -> Any:
        return {"words": self._words[number], "items": self._items[number]}, self._labels[number]


def trained(
    kind: Any, ps: TableStore | None, *, ranks: int = 1, depth: int = 0, precision: torch.dtype | None = None
) -> tuple[Model, EmbeddingTables]:
    """A model after two epochs, its embedding layers on `ps` where there are some."""
    torch.manual_seed(3)
    model = Model()
    optimizer = kind(model.parameters(), lr=0.2)
    tables: EmbeddingTables = NoTables()
    if ps is not None:
        attached = TorchEmbeddingLayers(model, "all", 0)
        attached.use_optimizer(optimizer)
        tables = HybridEmbeddingTables.open(attached, ps, depth)
    plan = TrainingPlan(
        records=RECORDS,
        global_batch=24,
        logical_ranks=ranks,
        epochs=2,
        seed=1,
        shuffle=True,
        drop_last=False,
        max_steps=0,
    )
    dataset = Dataset(mapped.as_source(Records(), "records"), stack=tensors.stack_values)
    setup = TrainingSetup(model, [optimizer], torch.device("cpu"), tables, learning_rate=lambda step: 0.2 / (1 + step))
    alone = LocalTraining.open(setup, dataset, plan)
    for step in alone.steps():
        for features, labels in step:
            with torch.autocast("cpu", precision, enabled=precision is not None):
                loss = (model(features) - labels).square().mean()
            step.backward(loss)
    tables.flush()
    return model, tables


def assert_same(plain: Model, moved: Model, tables: EmbeddingTables) -> None:
    with tables.full_model():
        expected, state = plain.state_dict(), moved.state_dict()
        assert set(state) == set(expected)
        for name in expected:
            assert torch.allclose(state[name], expected[name], rtol=0, atol=1e-6), name


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad])
def test_moved_layers_train_as_plain_ones_do(kind: Any) -> None:
    plain, _ = trained(kind, None)
    moved, tables = trained(kind, LocalTableStore(LocalTables(seed=0)))

    assert_same(plain, moved, tables)


def test_moved_layers_train_as_plain_ones_do_in_bf16() -> None:
    plain, _ = trained(torch.optim.SGD, None, precision=torch.bfloat16)
    exact, _ = trained(torch.optim.SGD, None)
    moved, tables = trained(torch.optim.SGD, LocalTableStore(LocalTables(seed=0)), precision=torch.bfloat16)

    assert not torch.equal(plain.head.weight, exact.head.weight)
    assert_same(plain, moved, tables)


def test_rows_are_prefetched_before_they_are_needed() -> None:
    _, tables = trained(torch.optim.SGD, LocalTableStore(LocalTables(seed=0)), ranks=2, depth=2)

    assert isinstance(tables, HybridEmbeddingTables)
    batches = 2 * 2 * RECORDS // 24
    assert tables.lookups.prefetched == 2 * (batches - 2), "both layers, once the first batch has been seen"


class Growing(nn.Module):
    """A model whose ids are nobody's numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = elastic.EmbeddingBag(4, combiner="sqrtn", padding_idx=0)
        self.items = elastic.Embedding(4, initializer="normal", optimizer="adagrad")
        self.head = nn.Linear(4, 1)

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        words, items = features["words"] * 1_000_003, features["items"][:, 0] - 7
        return self.head(self.words(words) * self.items(items)).squeeze(1)


def test_a_model_with_tables_is_trained_locally_exported_and_predicts_without_elasticdl(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Growing()
    job = elastic.join(model, torch.optim.SGD(model.parameters(), lr=0.5), Records(), global_batch_size=24, epochs=10)
    losses = []
    for step in job:
        for features, labels in step:
            loss = (model(features) - labels).square().mean()
            losses.append(loss.item())
            step.backward(loss)
    sample = tensors.to_tensors(features)
    expected = model(sample)

    with job.full_model():
        export_model(model, sample, tmp_path / "trained", {})
    program = torch.export.load(tmp_path / "trained" / "model.pt2").module()
    again = Growing()
    restore_state(restore_rows(again, *find_weights(tmp_path / "trained")), again, None)

    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])
    assert torch.allclose(program(sample), expected, atol=1e-6)
    assert torch.allclose(again(sample), expected, atol=1e-6)
    assert set(model.state_dict()) == {"head.weight", "head.bias"}, "the rows are in the tables again"


def test_a_warm_up_reads_rows_and_trains_none() -> None:
    def train(is_warm: bool) -> list[float]:
        torch.manual_seed(0)
        model = Growing()

        def batch_loss(features: Any, labels: Tensor) -> Tensor:
            return (model(features) - labels).square().mean()

        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        warm_up = batch_loss if is_warm else None
        losses = []
        for step in elastic.join(model, optimizer, Records(), global_batch_size=24, warm_up=warm_up):
            for features, labels in step:
                step.backward(batch_loss(features, labels))
            losses.append(step.loss)
        return losses

    assert train(is_warm=True) == train(is_warm=False)
