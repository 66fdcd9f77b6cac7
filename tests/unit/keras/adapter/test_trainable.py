"""A Keras model as the lease modes train it: values in, gradients out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elasticdl.keras.runtime import tf
from elasticdl.worker.training.numerics import seed_everything
from tests.unit.keras.models import DENSE, RECORDS, contract_of


def test_values_and_gradients_have_the_same_names_and_shapes_and_an_update_uses_the_rate(tmp_path: Path) -> None:
    source = DENSE.replace("Adam(lr)", "SGD(lr)").replace("Dropout(0.5)", "Dropout(0.0)")
    contract = contract_of(tmp_path, source, RECORDS)
    seed_everything(1)
    module = contract.build_model()
    calls: list[str] = []
    trainee = contract.make_trainable(module, contract.build_optimizer(module), lambda: calls.append("gradients"))
    before = trainee.variables()
    features = {"x": tf.constant(np.array([record[0] for record in RECORDS]))}

    loss, gradients = trainee.compute(features, tf.constant([record[1] for record in RECORDS]))
    trainee.update(gradients, rate=0.5)
    after = trainee.variables()

    assert loss > 0 and calls == ["gradients"]
    assert list(before) == list(gradients) == list(after)
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value - 0.5 * gradients[name], rtol=1e-5, atol=1e-6)
    assert any(np.any(gradient) for gradient in gradients.values())

    trainee.set_variables(before)

    again, _ = trainee.compute(features, tf.constant([record[1] for record in RECORDS]))
    assert again == pytest.approx(loss, rel=1e-5)
