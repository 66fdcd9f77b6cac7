"""A Keras model file: checked in its source, loaded, and told what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticdl.errors import ModelError
from elasticdl.keras.callbacks import KerasCallbackAdapter
from elasticdl.keras.runtime import keras
from elasticdl.model.callbacks import BestMetric
from elasticdl.model.check import check_contract
from elasticdl.spec import JobSpec, ModelSpec, PlanSpec
from tests.unit.keras.models import DENSE, RECORDS, contract_of


def spec(tmp_path: Path, source: str, **plan: Any) -> JobSpec:
    (tmp_path / "net.py").write_text(source)
    return JobSpec(name="job", model=ModelSpec(zoo=str(tmp_path), definition="net.forward"), plan=PlanSpec(**plan))


def test_an_optimizer_without_parameters_is_right_in_a_keras_file_only(tmp_path: Path) -> None:
    assert check_contract(spec(tmp_path, DENSE, learning_rate=0.2)) == []

    torch = DENSE.replace("import keras", "import torch").replace("import tensorflow as tf", "")
    with pytest.raises(ModelError, match=r"optimizer\(lr=0.1\) does not take lr"):
        check_contract(spec(tmp_path, torch, learning_rate=0.2))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("def optimizer(lr=0.1):", "def optimizer(rate=0.1):", "does not take lr, so --learning_rate=0.2 would be"),
        ("def optimizer(lr=0.1):", "def optimizer(parameters, lr=0.1):", "also requires parameters"),
        ("def loss(labels, predictions):", "def loss(output, labels):", "takes the predictions first"),
    ],
)
def test_problems_are_reported_before_anything_is_launched(tmp_path: Path, old: str, new: str, expected: str) -> None:
    with pytest.raises(ModelError, match=expected):
        check_contract(spec(tmp_path, DENSE.replace(old, new), learning_rate=0.2))


@pytest.mark.parametrize(
    "line", ["from tensorflow.keras import layers", "import keras", "from elasticdl.keras import x"]
)
def test_the_framework_is_detected_from_imports(tmp_path: Path, line: str) -> None:
    source = DENSE.replace("import keras", "").replace("import tensorflow as tf", "")

    assert check_contract(spec(tmp_path, f"{line}\n{source}")) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "return keras.Model",
            "return 5\n    keras.Model",
            r"forward: expected forward\(\*\*model_params\) -> keras.Model",
        ),
        ("return keras.optimizers.Adam(lr)", "return 'adam'", "optimizer: expected .* -> keras.optimizers.Optimizer"),
    ],
)
def test_the_values_that_functions_return_are_checked(tmp_path: Path, old: str, new: str, expected: str) -> None:
    contract = contract_of(tmp_path, DENSE.replace(old, new), RECORDS)

    with pytest.raises(ModelError, match=expected):
        contract.build_optimizer(contract.build_model())


def test_a_schedule_beside_learning_rate_is_refused(tmp_path: Path) -> None:
    decay = "keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(lr, 1, 0.5))"
    source = DENSE.replace("keras.optimizers.Adam(lr)", decay) + "\ndef learning_rate(step):\n    return 0.1\n"
    contract = contract_of(tmp_path, source, RECORDS)

    with pytest.raises(ModelError, match="say two things"):
        contract.build_optimizer(contract.build_model())


def test_keras_callbacks_are_called_for_every_update(tmp_path: Path) -> None:
    source = DENSE + (
        "\nclass Halving(keras.callbacks.Callback):\n"
        "    def on_epoch_begin(self, epoch, logs=None):\n"
        "        self.model.optimizer.learning_rate = 0.1 / 2**epoch\n"
        "    def on_train_batch_end(self, batch, logs=None):\n"
        "        self.model.stop_training = logs['loss'] > 5\n"
        "def callbacks():\n"
        "    from elasticdl.model.callbacks import BestMetric\n"
        "    return [Halving(), BestMetric('loss')]\n"
    )
    contract = contract_of(tmp_path, source, RECORDS)
    module = contract.build_model()
    optimizer = contract.build_optimizer(module)
    own, theirs = contract.make_callbacks(steps_per_epoch=3)
    assert isinstance(own, BestMetric) and isinstance(theirs, KerasCallbackAdapter)

    theirs.on_train_begin(module)
    theirs.on_gradients(module, step=2)
    assert float(module.keras.optimizer.learning_rate) == pytest.approx(0.1)
    theirs.on_gradients(module, step=6)
    assert float(module.keras.optimizer.learning_rate) == pytest.approx(0.025)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)  # as it was when the gradient was computed

    theirs.on_step_end(6, 1.0)
    assert theirs.stop_reason is None
    theirs.on_step_end(7, 6.0)
    assert theirs.stop_reason


def test_unsupported_callbacks_are_refused_with_an_alternative() -> None:
    with pytest.raises(ModelError, match=r"EarlyStopping cannot work here; use elasticdl\.model\.callbacks"):
        KerasCallbackAdapter([keras.callbacks.EarlyStopping()], 1)


def test_a_file_may_import_what_it_needs_by_the_names_of_the_original(tmp_path: Path) -> None:
    source = """
from elasticdl.python.common.constants import Mode
from elasticdl.python.elasticdl.callbacks import LearningRateScheduler
from elasticdl.python.elasticdl.layers.embedding import Embedding
""" + DENSE.replace("return dataset.map", "assert mode == Mode.TRAINING\n    return dataset.map")
    source += "\ndef callbacks():\n    return [LearningRateScheduler(lambda version: 0.5 / (1 + version))]\n"
    contract = contract_of(tmp_path, source, RECORDS)
    module = contract.build_model()
    contract.build_optimizer(module)
    (scheduler,) = contract.make_callbacks(1)

    scheduler.on_gradients(module, 4)

    assert float(module.keras.optimizer.learning_rate) == pytest.approx(0.1)


def test_a_schedule_counts_the_updates_of_all_workers(tmp_path: Path) -> None:
    decay = "keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(lr, 1, 0.5))"
    contract = contract_of(tmp_path, DENSE.replace("keras.optimizers.Adam(lr)", decay), RECORDS)
    optimizer = contract.build_optimizer(contract.build_model())

    assert [contract.rate_after(optimizer, step) for step in (0, 3)] == pytest.approx([0.1, 0.0125])
