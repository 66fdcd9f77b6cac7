"""Embedding layers on tables train as Keras's own do: dense, ragged and sparse ids, combined or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from elasticdl.data.dataset import Mode
from elasticdl.data.plan import TrainingPlan
from elasticdl.data.readers.mapped import MappedSource
from elasticdl.errors import ModelError
from elasticdl.keras import Embedding, SparseEmbedding
from elasticdl.keras.adapter import contract as contracts
from elasticdl.keras.adapter.contract import KerasContract
from elasticdl.keras.embeddings.placement import IN_MODEL, EmbeddingPlacement
from elasticdl.keras.runtime import keras, tf
from elasticdl.model.adapted import AdaptedOptimizer
from elasticdl.worker.embeddings.tables import NoTables
from elasticdl.worker.local import LocalTraining
from elasticdl.worker.training.loop import TrainingSetup
from elasticdl.worker.training.numerics import seed_everything
from tests import native
from tests.unit.keras.models import contract_of

native.require()

from elasticdl.ps.client.local_tables import LocalTables  # noqa: E402
from elasticdl.ps.wire.connections import PsUnreachable  # noqa: E402
from elasticdl.worker.embeddings.hybrid import HybridEmbeddingTables, LocalTableStore  # noqa: E402

ON_PS = EmbeddingPlacement(on_ps=True, move_policy="all", min_bytes=0)

HEAD = """
import keras
import tensorflow as tf
from elasticdl.keras import Embedding, SparseEmbedding

def loss(labels, predictions):
    return tf.reduce_mean((labels - predictions[:, 0]) ** 2)

def optimizer(lr=0.05):
    return keras.optimizers.Adagrad(lr)

def head(vectors):
    return keras.layers.Dense(1, kernel_initializer="ones")(vectors)
"""

PLAIN = """
def forward():
    a, b = keras.Input((2,), dtype="int64", name="a"), keras.Input((), dtype="int64", name="b")
    start = keras.initializers.Constant(0.05)
    wide = keras.layers.Flatten()(keras.layers.Embedding(50, 3, start)(a))
    narrow = keras.layers.Embedding(9, 2, start, name="narrow")(b)
    return keras.Model({"a": a, "b": b}, head(keras.layers.Concatenate()([wide, narrow])))

def dataset_fn(dataset, mode, metadata):
    return dataset.map(lambda r: ({"a": r["a"], "b": r["b"]}, r["y"]))
"""

BAGS = """
def forward(combiner="mean"):
    ids = keras.Input((None,), dtype="int64", ragged=True, name="ids")
    vectors = Embedding(4, INPUT, "zeros", combiner=combiner, name="words")(ids)
    return keras.Model(ids, head(vectors))

def dataset_fn(dataset, mode, metadata):
    return dataset.map(lambda r: (r["ids"], r["y"]))
"""

TWO = [{"a": np.array([n % 7, 40 + n % 3]), "b": np.int64(n % 9), "y": float(n % 2)} for n in range(30)]
LISTS = [{"ids": [(n * 7 + k) % 11 for k in range(n % 4)], "y": float(n % 2)} for n in range(30)]


def trained(
    contract: KerasContract, records: list[Any], *, depth: int = 0
) -> tuple[Any, list[float], HybridEmbeddingTables | None]:
    """The module after a few steps, alone, its losses, and its tables where it has some."""
    seed_everything(3)
    module = contract.build_model()
    optimizer = contract.build_optimizer(module)
    dataset = contract.make_dataset(MappedSource(records, "made up"), Mode.TRAINING)
    plan = TrainingPlan(records=30, global_batch=10, logical_ranks=1, epochs=3, seed=0, shuffle=True)
    tables = None
    if module.has_table:
        tables = HybridEmbeddingTables.open(
            module.attach_tables(cast(AdaptedOptimizer, optimizer)), LocalTableStore(LocalTables(seed=0)), depth
        )
    device = torch.device("cpu")
    setup = TrainingSetup(module, [optimizer], device, tables or NoTables(), learning_rate=contract.learning_rate)
    alone = LocalTraining.open(setup, dataset, plan)
    losses = []
    for step in alone.steps():
        for features, labels in step:
            step.backward(contract.batch_loss(module, features, labels))
        losses.append(float(step.losses[0]))
    return module, losses, tables


def test_plain_layers_that_moved_train_as_they_would_in_the_worker(tmp_path: Path) -> None:
    module, losses, _ = trained(contract_of(tmp_path, HEAD + PLAIN, TWO, ON_PS), TWO)
    _, expected, _ = trained(contract_of(tmp_path, HEAD + PLAIN, TWO, IN_MODEL), TWO)

    assert sorted(module.ps_layers) == ["embedding", "narrow"]
    assert [name for name, _ in module.named_parameters()] == ["dense/kernel", "dense/bias"]
    assert losses == pytest.approx(expected, rel=1e-4)


def test_ids_that_are_features_as_they_are_are_asked_for_ahead(tmp_path: Path) -> None:
    _, losses, tables = trained(contract_of(tmp_path, HEAD + PLAIN, TWO, ON_PS), TWO, depth=2)

    assert tables is not None
    # All but those of the first two batches: the first shows what is asked, and the second was made before.
    assert tables.lookups.prefetched == 2 * len(losses) - 4


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_ragged_ids_combine_on_ps_as_they_do_in_the_worker(tmp_path: Path, combiner: str) -> None:
    source = HEAD + BAGS.replace("INPUT", "11")
    _, losses, _ = trained(contract_of(tmp_path, source, LISTS, ON_PS, combiner=combiner), LISTS)
    _, expected, _ = trained(contract_of(tmp_path, source, LISTS, IN_MODEL, combiner=combiner), LISTS)

    assert losses == pytest.approx(expected, rel=1e-4)


def test_the_export_of_a_model_with_tables_is_plain_keras(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, HEAD + PLAIN, TWO, ON_PS)
    module, _, tables = trained(contract, TWO)
    assert tables is not None
    dataset = contract.make_dataset(MappedSource(TWO, "made up"), Mode.TRAINING)
    batch = dataset.read_batch(np.arange(30))
    assert batch is not None

    with tables.full_model():
        contract.export(module, batch.features, tmp_path / "out", {"step": 9})
    program = tf.saved_model.load(str(tmp_path / "out"))
    loaded = keras.saving.load_model(tmp_path / "out" / "model.keras")

    module.eval()
    expected = module(batch.features).numpy()
    np.testing.assert_allclose(program.serve(batch.features).numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loaded(batch.features).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert not any(isinstance(layer, Embedding) for layer in loaded.layers)


def test_an_export_of_a_layer_of_any_ids_holds_those_it_has_seen(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, HEAD + BAGS.replace("INPUT", "None"), LISTS, ON_PS)
    module, _, tables = trained(contract, LISTS)
    assert tables is not None
    ids = tf.ragged.constant([[1, 2], [5], [], [10**12]], dtype=tf.int64)
    module.eval()
    expected = module(ids).numpy()

    with tables.full_model():
        contract.export(module, ids, tmp_path / "out", {"step": 9})
    program = tf.saved_model.load(str(tmp_path / "out"))

    np.testing.assert_allclose(program.serve(ids).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert not (tmp_path / "out" / "model.keras").exists()

    from elasticdl.checkpoint.captured_state import restore_state
    from elasticdl.checkpoint.export import find_weights

    again = contract_of(tmp_path, HEAD + BAGS.replace("INPUT", "None"), LISTS).build_model()
    restore_state(find_weights(tmp_path / "out")[0], again, None)
    np.testing.assert_allclose(again.eval()(ids).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_sparse_embedding_takes_zero_for_none_among_dense_ids() -> None:
    layer = SparseEmbedding(5, 2, embeddings_initializer="ones", combiner="sum")

    vectors = layer(tf.constant([[1, 2, 0], [0, 0, 0], [4, 4, 4]])).numpy()

    assert vectors.tolist() == [[2.0, 2.0], [0.0, 0.0], [3.0, 3.0]]


@pytest.mark.parametrize(("combiner", "expected"), [("sum", 2.0), ("mean", 1.0), ("sqrtn", 2**0.5)])
def test_sparse_ids_are_combined_by_record(combiner: str, expected: float) -> None:
    ids = tf.sparse.from_dense(tf.constant([[3, 1], [0, 0], [2, 0]], tf.int64))

    vectors = Embedding(2, 5, "ones", combiner=combiner)(ids).numpy()

    assert vectors[:, 0].tolist() == pytest.approx([expected, 0.0, 1.0])


def test_ragged_ids_without_a_combiner_keep_their_shape() -> None:
    vectors = Embedding(2, 5, "ones")(tf.ragged.constant([[1, 2], []], dtype=tf.int64))

    assert vectors.to_list() == [[[1.0, 1.0], [1.0, 1.0]], []]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: Embedding(2, combiner="max"), "expected a combiner of sum, mean, sqrtn. Received: 'max'"),
        (lambda: Embedding(2)(tf.constant([1])), "expected input_dim, or a job with ps"),
        (lambda: Embedding(2, 5, combiner="sum")(tf.constant([1])), "expected ids of two dimensions"),
        (lambda: Embedding(2, 5)(tf.sparse.from_dense(tf.constant([[1]]))), "expected a combiner for sparse ids"),
    ],
)
def test_ids_that_cannot_be_looked_up_are_reported(call: Any, expected: str) -> None:
    with pytest.raises(ModelError, match=expected):
        call()


def test_layers_that_a_ps_could_not_serve_stay_with_a_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger=contracts.__name__)
    frozen = PLAIN.replace('name="narrow"', 'name="narrow", trainable=False')

    module = contract_of(tmp_path, HEAD + frozen, TWO, ON_PS).build_model()

    assert list(module.ps_layers) == ["embedding"]
    assert "narrow stays in the workers: it is frozen" in caplog.text


def test_whether_a_layer_moves_changes_the_name_of_no_other(tmp_path: Path) -> None:
    source = HEAD + PLAIN.replace(', name="narrow"', "")
    full_model = contract_of(tmp_path, source, TWO).build_model()
    large = EmbeddingPlacement(on_ps=True, move_policy="auto", min_bytes=50 * 3 * 4)

    module = contract_of(tmp_path, source, TWO, large).build_model()

    assert list(module.ps_layers) == ["embedding"]
    assert set(full_model.state_dict()) - set(module.state_dict()) == {"embedding/embeddings"}
    assert (
        full_model.state_dict()["embedding_1/embeddings"].shape == module.state_dict()["embedding_1/embeddings"].shape
    )


def test_a_model_without_ps_has_the_rows_of_files(tmp_path: Path) -> None:
    source = HEAD + BAGS.replace("INPUT", "None")
    contract = contract_of(tmp_path, source, LISTS, ON_PS)
    module, _, tables = trained(contract, LISTS)
    assert tables is not None
    ids = tf.ragged.constant([[1, 2], [5], []], dtype=tf.int64)
    table_ids, rows = tables.client.read_table("words")  # type: ignore[attr-defined]
    again = contract_of(tmp_path, source, LISTS).build_model()

    again.load_state_dict(
        {**module.state_dict(), "words/ids": torch.tensor(table_ids), "words/rows": torch.tensor(rows)}
    )

    np.testing.assert_allclose(again.eval()(ids).numpy(), module.eval()(ids).numpy(), rtol=1e-6)


class Broken:
    """A source whose ps are gone."""

    def find(self, table: str, ids: Any) -> Any:
        raise PsUnreachable(f"{table}: nobody answers")

    def give(self, table: str, ids: Any, gradients: Any) -> None:
        raise AssertionError


def test_an_error_of_a_pull_is_raised_unchanged(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, HEAD + BAGS.replace("INPUT", "None"), LISTS, ON_PS)
    module = contract.build_model()
    ids = tf.ragged.constant([[1, 2]], dtype=tf.int64)

    with pytest.raises(ModelError, match="table words: no ps to pull it from yet"):
        module(ids)
    module.computation.use_source(Broken())  # type: ignore[arg-type]
    with pytest.raises(PsUnreachable, match="words: nobody answers"):
        module.batch_loss(ids, tf.constant([1.0]))


def test_only_large_layers_move_automatically(tmp_path: Path) -> None:
    large = EmbeddingPlacement(on_ps=True, move_policy="auto", min_bytes=50 * 3 * 4)

    module = contract_of(tmp_path, HEAD + PLAIN, TWO, large).build_model()

    assert list(module.ps_layers) == ["embedding"]
    assert "narrow/embeddings" in dict(module.named_parameters())
