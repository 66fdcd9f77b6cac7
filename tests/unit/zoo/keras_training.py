"""A plain training loop over the contract of a Keras file: what a worker does, without anyone else."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from elasticdl.data.interface import RecordSource
from elasticdl.data.plan import TrainingPlan
from elasticdl.keras.adapter import contract as contracts
from elasticdl.keras.adapter.contract import KerasContract
from elasticdl.keras.adapter.module import KerasModule
from elasticdl.keras.embeddings.placement import IN_MODEL
from elasticdl.keras.runtime import keras
from elasticdl.model import reduction
from elasticdl.model.check import check_contract
from elasticdl.model.mode import Mode
from elasticdl.spec import JobKind, JobSpec, ModelSpec
from elasticdl.zoo.catalog import MODELS_BY_NAME, ZOO_DIRECTORY
from tests.evaluating import evaluate_records


def load(name: str, **params: Any) -> KerasContract:
    """The contract of a model of the catalog."""
    model = MODELS_BY_NAME[name]
    definition = f"{model.file.removeprefix('zoo/').removesuffix('.py').replace('/', '.')}.{model.function}"
    spec = ModelSpec(zoo=str(ZOO_DIRECTORY), definition=definition, params=params)
    assert check_contract(JobSpec(name="job", model=spec)) == []
    return contracts.load_keras_contract(spec, JobKind.TRAINING, IN_MODEL)


def train(contract: KerasContract, training: RecordSource, steps: int, batch: int) -> tuple[KerasModule, list[float]]:
    """Returns the model after `steps` steps, and the loss of each."""
    keras.utils.set_random_seed(0)
    dataset = contract.make_dataset(training, Mode.TRAINING)
    model = contract.build_model()
    optimizer = contract.build_optimizer(model)
    plan = TrainingPlan(len(training), batch, 1, epochs=1000, max_steps=steps)
    losses = []
    for step in range(plan.total_steps):
        records = dataset.read_batch(plan.batch(step))
        assert records is not None
        optimizer.zero_grad()
        value = contract.batch_loss(model, records.features, records.labels)
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    assert np.isfinite(losses).all()
    return model, losses


def evaluate(contract: KerasContract, model: KerasModule, test: RecordSource) -> dict[str, float]:
    dataset = contract.make_dataset(test, Mode.EVALUATION)
    parts = evaluate_records(model, contract, dataset, 0, len(test), 256, torch.device("cpu"))
    return reduction.compute_results(parts)
