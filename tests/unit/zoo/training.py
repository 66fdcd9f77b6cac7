"""A plain training loop over the contract: what a worker does, without anyone else."""

from __future__ import annotations

import torch

from elasticdl.data.dataset import Dataset
from elasticdl.data.interface import RecordSource
from elasticdl.data.plan import TrainingPlan
from elasticdl.model import reduction, tensors
from elasticdl.model.contract import Contract
from elasticdl.model.mode import Mode
from tests.evaluating import evaluate_records

CPU = torch.device("cpu")


def train(contract: Contract, training: RecordSource, test: RecordSource, steps: int, batch: int) -> dict[str, float]:
    """Returns the metrics on `test` after `steps` steps on `training`."""
    torch.manual_seed(0)
    model = contract.build_model()
    optimizer = contract.build_optimizer(model)
    callbacks = contract.make_callbacks()
    dataset = contract.make_dataset(training, Mode.TRAINING)
    plan = TrainingPlan(len(training), batch, 1, epochs=1000, max_steps=steps)
    for step in range(plan.total_steps):
        records = dataset.read_batch(plan.batch(step))
        assert records is not None
        ready = tensors.move_batch(records, CPU)
        optimizer.zero_grad()
        contract.loss(ready.labels, model(ready.features)).backward()
        for callback in callbacks:
            callback.on_gradients(model, step)
        if (rate := contract.learning_rate(step)) is not None:
            for group in optimizer.param_groups:
                group["lr"] = rate
        optimizer.step()
    return evaluate(contract, model, contract.make_dataset(test, Mode.EVALUATION))


def evaluate(contract: Contract, model: torch.nn.Module, dataset: Dataset) -> dict[str, float]:
    records = min(len(dataset.source), 256)
    return reduction.compute_results(evaluate_records(model, contract, dataset, 0, records, 64, CPU))
