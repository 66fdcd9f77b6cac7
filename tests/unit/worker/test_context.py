from __future__ import annotations

from typing import Any

import pytest
import torch

from elasticdl.data.plan import TrainingPlan
from elasticdl.errors import SpecError
from elasticdl.model.adapted import AdaptedOptimizer
from elasticdl.spec import CheckpointSpec, JobSpec, ModelSpec, PlanSpec, SecuritySpec, WorkersSpec
from elasticdl.spec.plan import LrScaling
from elasticdl.worker.assembly import make_adaptive_batch
from elasticdl.worker.checkpoints import is_checkpoint_due
from elasticdl.worker.context import uses_nccl

PLAN = TrainingPlan(records=40, global_batch=2, logical_ranks=1)


def job(**fields: Any) -> JobSpec:
    return JobSpec(name="job", model=ModelSpec(definition="a.b.c"), **fields)


def test_an_update_of_several_steps_is_saved_where_it_passes_a_multiple() -> None:
    spec, ends = job(checkpoint=CheckpointSpec(every_steps=4)), [3, 6, 9, 12, 15, 18, 20]
    spans = zip([0, *ends], ends, strict=False)

    assert [end for before, end in spans if is_checkpoint_due(spec, end, before)] == [6, 9, 12, 18, 20]
    assert [step for step in range(1, 13) if is_checkpoint_due(spec, step)] == [4, 8, 12]


def test_no_checkpoint_is_due_if_none_is_requested() -> None:
    assert not any(is_checkpoint_due(job(), step, step - 3) for step in range(3, 20))


def test_the_rate_of_a_keras_optimizer_cannot_be_scaled() -> None:
    keras = [AdaptedOptimizer([torch.nn.Parameter(torch.zeros(1))], {})]
    make_adaptive_batch(job(), PLAN, keras, "run")

    with pytest.raises(SpecError, match="the model is one of Keras: leave out --adaptive_batch"):
        make_adaptive_batch(job(plan=PlanSpec(lr_scaling=LrScaling("sqrt"))), PLAN, keras, "run")


@pytest.mark.parametrize(
    ("gpus", "security", "address", "expected"),
    [
        (2, SecuritySpec(), "10.0.0.7", True),
        (1, SecuritySpec(), "10.0.0.7", False),
        (2, SecuritySpec(tls=True), "10.0.0.7", False),
        (2, SecuritySpec(tls=True, plain_nccl=True), "10.0.0.7", True),
        (2, SecuritySpec(tls=True), "127.0.0.1", True),
    ],
    ids=["plain", "shared GPUs", "tls", "tls, but said otherwise", "tls, on one machine"],
)
def test_nccl_carries_gradients_between_machines_only_if_plain_text_is_allowed(
    monkeypatch: pytest.MonkeyPatch, gpus: int, security: SecuritySpec, address: str, expected: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    spec = job(security=security, workers=WorkersSpec(replicas=2))

    assert uses_nccl(torch.device("cuda", 0), spec, address) == expected
    assert not uses_nccl(torch.device("cpu"), spec, address)
