"""A Keras model behind the face of a torch module: the same gradients, state and updates as Keras itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elasticdl.checkpoint.captured_state import capture_state, restore_state
from elasticdl.data.dataset import Mode
from elasticdl.data.plan import TrainingPlan
from elasticdl.data.readers.mapped import MappedSource
from elasticdl.errors import ModelError
from elasticdl.keras.adapter.contract import KerasContract
from elasticdl.keras.adapter.module import KerasModule
from elasticdl.keras.runtime import keras, tf
from elasticdl.worker.local import LocalTraining
from elasticdl.worker.training.loop import TrainingSetup
from elasticdl.worker.training.numerics import seed_everything
from tests.unit.keras.models import DENSE, RECORDS, contract_of

CPU = torch.device("cpu")


def batch() -> tuple[Any, Any]:
    features = tf.constant(np.array([record[0] for record in RECORDS]))
    return {"x": features}, tf.constant([record[1] for record in RECORDS])


def built(contract: KerasContract, seed: int = 1) -> KerasModule:
    seed_everything(seed)
    return contract.build_model()


def same(left: KerasModule, right: KerasModule) -> bool:
    left_state, right_state = left.state_dict(), right.state_dict()
    return list(left_state) == list(right_state) and all(
        torch.equal(left_state[name], right_state[name]) for name in left_state
    )


def test_gradients_are_those_of_keras(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, DENSE.replace("Dropout(0.5)", "Dropout(0.0)"), RECORDS)
    module, (features, labels) = built(contract), batch()
    with tf.GradientTape() as tape:
        value = contract.loss(labels, module.keras(features["x"], training=True))
    expected = tape.gradient(value, [v.value for v in module.keras.trainable_variables])

    loss = contract.batch_loss(module, features, labels)
    (loss * 0.5).backward()

    assert float(loss.detach()) == pytest.approx(float(value))
    for parameter, gradient in zip(module.parameters(), expected, strict=True):
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad.numpy(), gradient.numpy() * 0.5, rtol=1e-5, atol=1e-7)


def test_names_do_not_depend_on_what_was_built_before(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, DENSE, RECORDS)

    first, second = built(contract), built(contract)

    assert list(first.state_dict()) == list(second.state_dict())
    assert same(first, second)
    assert set(first.state_dict()) >= {"dense/kernel", "dense_1/bias", "batch_normalization/moving_mean"}


def test_random_numbers_come_from_the_seed_of_the_batch(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, DENSE, RECORDS)
    module, (features, labels) = built(contract), batch()

    def loss(*key: int) -> float:
        seed_everything(*key)
        return float(contract.batch_loss(module, features, labels).detach())

    assert loss(1, 2) == loss(1, 2)
    assert len({loss(1, 2), loss(1, 3), loss(2, 2)}) == 3


def test_statistics_are_buffers_that_a_batch_changes(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, DENSE, RECORDS)
    module, (features, labels) = built(contract), batch()
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}

    contract.batch_loss(module, features, labels)
    after = dict(module.named_buffers())

    assert set(before) == {"batch_normalization/moving_mean", "batch_normalization/moving_variance"}
    assert not torch.equal(before["batch_normalization/moving_mean"], after["batch_normalization/moving_mean"])
    for name, buffer in module.named_buffers():
        buffer.copy_(before[name])
    np.testing.assert_array_equal(
        module.write_statistics().get_layer(index=2).moving_mean.numpy(),
        before["batch_normalization/moving_mean"].numpy(),
    )


def test_an_update_is_that_of_keras(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, DENSE.replace("Dropout(0.5)", "Dropout(0.0)"), RECORDS)
    module, other_module, (features, labels) = built(contract), built(contract), batch()
    optimizer, theirs = contract.build_optimizer(module), keras.optimizers.Adam(0.1)

    for _ in range(3):
        optimizer.zero_grad()
        contract.batch_loss(module, features, labels).backward()
        optimizer.step()
        with tf.GradientTape() as tape:
            value = contract.loss(labels, other_module.keras(features["x"], training=True))
        theirs.apply_gradients(
            zip(
                tape.gradient(value, other_module.keras.trainable_variables),
                other_module.keras.trainable_variables,
                strict=True,
            )
        )

    for mine, expected in zip(module.keras.trainable_variables, other_module.keras.trainable_variables, strict=True):
        np.testing.assert_allclose(mine.numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)


def test_an_image_restores_model_and_optimizer(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, DENSE, RECORDS)
    first, second, (features, labels) = built(contract), built(contract, seed=9), batch()
    ours, theirs = contract.build_optimizer(first), contract.build_optimizer(second)
    contract.batch_loss(first, features, labels).backward()
    ours.step()

    restore_state(capture_state(first, ours, 1, 24), second, theirs)

    assert same(first, second)
    for module, optimizer in ((first, ours), (second, theirs)):
        seed_everything(5)
        optimizer.zero_grad()
        contract.batch_loss(module, features, labels).backward()
        optimizer.step()
    assert same(first, second)


def test_an_image_of_another_model_is_refused(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, DENSE, RECORDS)
    small, large = built(contract), contract_of(tmp_path, DENSE, RECORDS, hidden=7).build_model()

    with pytest.raises(ModelError, match="do not fit the model: dense/kernel: expected the shape"):
        restore_state(capture_state(small, None, 0, 0), large, None)


def test_frozen_layers_are_kept_but_neither_trained_nor_shared_in_steps(tmp_path: Path) -> None:
    frozen = DENSE.replace('Dense(hidden, activation="relu")', 'Dense(hidden, name="base", trainable=False)')
    module = built(contract_of(tmp_path, frozen, RECORDS))

    assert "base/kernel" in module.state_dict()
    assert "base/kernel" not in dict(module.named_parameters())
    assert "base/kernel" not in dict(module.named_buffers())


def test_a_rate_that_is_set_each_step_and_a_schedule_are_honoured(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, DENSE, RECORDS)
    module, (features, labels) = built(contract), batch()
    optimizer = contract.build_optimizer(module, lr=0.25)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.25)

    optimizer.param_groups[0]["lr"] = 0.0
    before = module.state_dict()["dense/kernel"]
    contract.batch_loss(module, features, labels).backward()
    optimizer.step()
    assert torch.equal(module.state_dict()["dense/kernel"], before)

    decay = "keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(lr, 1, 0.5))"
    scheduled = contract_of(tmp_path, DENSE.replace("keras.optimizers.Adam(lr)", decay), RECORDS)
    module = built(scheduled)
    optimizer = scheduled.build_optimizer(module)
    rates = []
    for _ in range(3):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        scheduled.batch_loss(module, features, labels).backward()
        optimizer.step()
    assert rates == pytest.approx([0.1, 0.05, 0.025])


@pytest.mark.parametrize("kind", ["Sequential", "subclass"])
def test_models_that_are_built_by_their_first_batch_train_too(tmp_path: Path, kind: str) -> None:
    sequential = (
        "def forward():\n    return keras.Sequential([keras.layers.Dense(3), keras.layers.Dropout(0.5), "
        "keras.layers.Dense(1)])\n"
    )
    subclass = (
        "class Net(keras.Model):\n    def __init__(self):\n        super().__init__()\n"
        "        self.one = keras.layers.Dense(3)\n        self.two = keras.layers.Dense(1)\n"
        "    def call(self, inputs):\n        return self.two(self.one(inputs))\n"
        "def forward():\n    return Net()\n"
    )
    source = DENSE.replace('({"x": x}, y)', "(x, y)") + (sequential if kind == "Sequential" else subclass)
    contract = contract_of(tmp_path, source, RECORDS)
    module = built(contract)
    dataset = contract.make_dataset(MappedSource(RECORDS, "made up"), Mode.TRAINING)
    plan = TrainingPlan(records=24, global_batch=8, logical_ranks=2, epochs=4, seed=0, shuffle=True)
    setup = TrainingSetup(module, [contract.build_optimizer(module)], CPU, learning_rate=contract.learning_rate)
    alone = LocalTraining.open(setup, dataset, plan)
    losses = []

    for step in alone.steps():
        for features, labels in step:
            step.backward(contract.batch_loss(module, features, labels))
        losses.append(float(sum(step.losses.values())))

    assert len(list(module.parameters())) == 4
    assert losses[-1] < losses[0]


def test_seed_and_statistics_decide_the_bits_of_a_gradient(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, DENSE, RECORDS)
    module, (features, labels) = built(contract), batch()
    digests = set()
    for _ in range(2):
        for buffer in module.buffers():
            buffer.fill_(1.0)
        seed_everything(0, 3, 1)
        contract.batch_loss(module, features, labels).backward()
        digests.add(b"".join(p.grad.numpy().tobytes() for p in module.parameters() if p.grad is not None))
        module.zero_grad(set_to_none=True)

    assert len(digests) == 1
