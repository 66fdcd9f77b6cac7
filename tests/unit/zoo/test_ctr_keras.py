"""Models of clicks in Keras: the math of those in torch, trained from a config, exported to take raw columns."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
import torch

from elasticdl.checkpoint.captured_state import restore_state
from elasticdl.checkpoint.export import find_weights
from elasticdl.ctr import build, config
from elasticdl.ctr.models import catalog, dcn, xdeepfm
from elasticdl.data.plan import TrainingPlan
from elasticdl.data.sources import open_source
from elasticdl.model.adapted import AdaptedOptimizer
from elasticdl.model.check import check_contract
from elasticdl.model.mode import Mode
from elasticdl.spec import DataSpec, JobKind, JobSpec, ModelSpec, PlanSpec
from tests import native

pytest.importorskip("tensorflow")
pytest.importorskip("duckdb")
native.require()

from elasticdl.ctr.models.keras import dcn as keras_dcn  # noqa: E402
from elasticdl.ctr.models.keras import xdeepfm as keras_xdeepfm  # noqa: E402
from elasticdl.keras.adapter import contract as contracts  # noqa: E402
from elasticdl.keras.embeddings.placement import IN_MODEL, EmbeddingPlacement  # noqa: E402
from elasticdl.keras.runtime import tf  # noqa: E402
from elasticdl.ps.client.local_tables import LocalTables  # noqa: E402
from elasticdl.worker.embeddings.hybrid import HybridEmbeddingTables, LocalTableStore  # noqa: E402
from elasticdl.worker.local import LocalTraining  # noqa: E402
from elasticdl.worker.training.loop import TrainingSetup  # noqa: E402
from elasticdl.worker.training.numerics import seed_everything  # noqa: E402

NAMES = ["keras/wide_deep", "keras/deepfm", "keras/xdeepfm", "keras/dcn"]
FEATURES = {
    "n": ["discretization(quantiles=4)", "normalizer", "missing_indicator"],
    "k": "hashing(num_bins=50)",
    "s": 'sequence(sep=";", max_length=3, like=a)',
    "crosses": ["cross(a, k, num_bins=90)"],
}


def never_seen(rows: int) -> dict[str, list[Any]]:
    """Values that are new, missing, and both."""
    numbers = random.Random(6)
    return {
        "n": [numbers.choice([numbers.uniform(-2, 12), None, -1e9]) for _ in range(rows)],
        "a": [numbers.choice(["a", "b", None, "new", "ü"]) for _ in range(rows)],
        "k": [numbers.choice([3, 77, None, 0]) for _ in range(rows)],
        "s": [numbers.choice(["a;b", None, "b;;zz;a;a", ""]) for _ in range(rows)],
    }


def write_clicks(path: Path, rows: int = 400) -> Path:
    numbers = random.Random(5)
    lines = ["label,n,a,k,s"]
    for _ in range(rows):
        n, a, k = numbers.uniform(0, 10), numbers.choice("abcd"), numbers.randrange(6)
        sequence = ";".join(numbers.choice("abcd") for _ in range(numbers.randrange(4)))
        label = int(numbers.random() < 0.1 + 0.7 * (a in "ab"))
        lines.append(f"{label},{n if numbers.random() > 0.1 else ''},{a},{k},{sequence}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("name", NAMES)
def test_a_model_from_a_config_learns_and_its_export_takes_raw_columns(name: str, tmp_path: Path) -> None:
    data = write_clicks(tmp_path / "clicks.csv")
    document = {"data": str(data), "label": "label", "model": name, "features": FEATURES, "split": [100, 0, 0]}
    built = build.build_directory(
        config.parse_config(document, "ctr.yaml"), tmp_path / "ctr", "ctr.yaml", print, lambda *_: None
    )
    spec = ModelSpec(zoo=str(tmp_path / "ctr"), definition=f"{name.replace('/', '_')}.forward", params={"dropout": 0.0})
    assert check_contract(JobSpec(name="job", model=spec, plan=PlanSpec(learning_rate=0.01))) == []
    contract = contracts.load_keras_contract(
        spec, JobKind.TRAINING, EmbeddingPlacement(on_ps=True, move_policy="all", min_bytes=0)
    )
    source = open_source(str(data), DataSpec())

    seed_everything(3)
    dataset = contract.make_dataset(source, Mode.TRAINING)
    module = contract.build_model()
    optimizer = contract.build_optimizer(module, 0.01)
    tables = HybridEmbeddingTables.open(
        module.attach_tables(cast(AdaptedOptimizer, optimizer)), LocalTableStore(LocalTables(seed=0)), 2
    )
    plan = TrainingPlan(records=len(source), global_batch=50, logical_ranks=1, epochs=3, seed=0, shuffle=True)
    setup = TrainingSetup(module, [optimizer], torch.device("cpu"), tables, learning_rate=contract.learning_rate)
    alone = LocalTraining.open(setup, dataset, plan)
    losses = []
    for step in alone.steps():
        for features, labels in step:
            step.backward(contract.batch_loss(module, features, labels))
        losses.append(float(step.losses[0]))
    assert np.mean(losses[-4:]) < 0.9 * losses[0]
    assert tables.lookups.prefetched > 0

    with tables.full_model():
        contract.export(module, None, tmp_path / "out", {"step": len(losses)})
    program = tf.saved_model.load(str(tmp_path / "out"))
    new = never_seen(300)
    served = program.serve(raw(new))

    again = contracts.load_keras_contract(spec, JobKind.TRAINING, IN_MODEL)
    again.make_dataset(source, Mode.TRAINING)
    restored = again.build_model()
    restore_state(find_weights(tmp_path / "out")[0], restored, None)
    columns = pa.RecordBatch.from_pydict(new)
    encoded = {key: tf.constant(array) for key, array in built.preprocessor.encode(columns).items()}
    expected = restored.eval()(encoded)
    for output in ("probability", "score"):
        np.testing.assert_array_equal(served[output].numpy(), expected[output].numpy())
    assert len(set(served["score"].numpy().tolist())) > 100


def raw(columns: dict[str, list[Any]]) -> dict[str, Any]:
    """As a person without ElasticDL would write it."""
    return {
        name: tf.constant([np.nan if value is None else value for value in values], tf.float64)
        if name in ("n", "k")
        else tf.constant(["" if value is None else value for value in values])
        for name, values in columns.items()
    }


def test_an_unknown_parameter_is_reported_with_the_existing_ones() -> None:
    assert catalog.MODELS_BY_NAME["keras/deepfm"].params == {
        "embedding_dim": 8,
        "hidden_units": (128, 64),
        "dropout": 0.2,
    }


def test_cross_networks_of_both_frameworks_are_one() -> None:
    torch.manual_seed(0)
    ours, theirs = keras_dcn.CrossNetwork(2), dcn.CrossNetwork(6, 2)
    x = torch.randn(5, 6)
    ours.build((None, 6))
    for mine, yours in zip([*ours.kernels, *ours.biases], [*theirs.weights, *theirs.biases], strict=True):
        mine.assign(yours.detach().numpy() + 0.1)
        yours.data += 0.1

    np.testing.assert_allclose(ours(tf.constant(x.numpy())), theirs(x).detach(), rtol=1e-5, atol=1e-6)


def test_compressed_interactions_of_both_frameworks_are_one() -> None:
    torch.manual_seed(0)
    ours, theirs = keras_xdeepfm.CIN((3, 2)), xdeepfm.CIN(4, (3, 2))
    fields = torch.randn(5, 4, 6)
    ours(tf.constant(fields.numpy()))
    for mine, yours in zip(ours.mixing, theirs.layers, strict=True):
        mine.kernel.assign(yours.get_parameter("weight").detach().numpy()[:, :, 0].T)
        mine.bias.assign(yours.get_parameter("bias").detach().numpy())

    np.testing.assert_allclose(ours(tf.constant(fields.numpy())), theirs(fields).detach(), rtol=1e-4, atol=1e-5)
