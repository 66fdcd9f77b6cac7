from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticdl.data.plan import Plan
from elasticdl.errors import SpecError
from elasticdl.spec import CheckpointSpec, JobSpec, ModelSpec, PlanSpec
from elasticdl.worker.assembly import batch_of, is_due

PLAN = Plan(records=40, global_batch=2, logical_ranks=1)


def job(**fields: Any) -> JobSpec:
    return JobSpec(name="job", model=ModelSpec(definition="a.b.c"), **fields)


def test_an_update_of_several_steps_is_saved_where_it_passes_a_multiple() -> None:
    spec, ends = job(checkpoint=CheckpointSpec(steps=4)), [3, 6, 9, 12, 15, 18, 20]

    assert [end for before, end in zip([0, *ends], ends, strict=False) if is_due(spec, end, before)] == [
        6,
        9,
        12,
        18,
        20,
    ]
    assert [step for step in range(1, 13) if is_due(spec, step)] == [4, 8, 12]


def test_no_checkpoint_is_due_where_none_is_asked_for() -> None:
    assert not any(is_due(job(), step, step - 3) for step in range(3, 20))


def test_the_rate_of_a_keras_optimizer_cannot_be_scaled() -> None:
    keras = [cast(Any, SimpleNamespace(keras=object()))]
    batch_of(job(), PLAN, keras, "run")

    with pytest.raises(SpecError, match="the model is one of Keras: leave out --adaptive_batch"):
        batch_of(job(plan=PlanSpec(batch_rule="sqrt")), PLAN, keras, "run")
