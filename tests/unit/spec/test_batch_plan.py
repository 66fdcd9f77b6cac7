"""What a job may say of its batch."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from elasticdl.spec import JobSpec, LrScaling, ModelSpec, PlanSpec, PsSpec, WorkersSpec


def job(ps: int | None = None, **plan: Any) -> JobSpec:
    return JobSpec(
        name="job",
        model=ModelSpec(definition="a.b.c"),
        workers=WorkersSpec(replicas=2),
        plan=PlanSpec(global_batch_size=64, **plan),
        ps=PsSpec(replicas=ps),
    )


def test_the_batch_stays_as_it_is_where_nothing_is_said() -> None:
    plan = job().plan

    assert plan.lr_scaling is LrScaling.NONE
    assert plan.max_scale(64) == 1


@pytest.mark.parametrize(("size", "expected"), [(0, 32), (64, 1), (200, 3), (640, 10)])
def test_the_largest_batch_bounds_its_scale(size: int, expected: int) -> None:
    assert job(lr_scaling="sqrt", max_batch_size=size).plan.max_scale(64) == expected


def test_a_schedule_survives_the_way_to_the_worker() -> None:
    spec = job(lr_scaling="linear", batch_schedule={"0": "2", "100": "4"})

    assert JobSpec.model_validate_json(spec.model_dump_json()).plan.batch_schedule == {0: 2, 100: 4}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"batch_schedule": {10: 2}}, "plan.batch_schedule: the batch of this job is not scaled"),
        ({"max_batch_size": 640}, "plan.max_batch_size: the batch of this job is not scaled"),
        ({"lr_scaling": "sqrt", "max_batch_size": 32}, "32 is smaller than the global batch of 64"),
        ({"lr_scaling": "sqrt", "batch_schedule": {10: 33}}, "use --max_batch_size=2112"),
        ({"lr_scaling": "sqrt", "batch_schedule": {-1: 3}}, "steps are counted from 0, received -1"),
        ({"lr_scaling": "sqrt", "ps": 1}, "remove --adaptive_batch, or use --distribution_strategy=Allreduce"),
        ({"lr_scaling": "cube"}, "'none', 'adascale', 'sqrt' or 'linear'"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        job(**fields)
