"""Precision and micro-batches: what a job may say of how its batches are computed."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from elasticdl.spec import ComputePrecision, JobKind, JobSpec, ModelSpec, PlanSpec, PsSpec, ScriptSpec


def job(kind: JobKind = JobKind.TRAINING, ps: dict[str, Any] | None = None, **plan: Any) -> JobSpec:
    script = ScriptSpec(path="train.py") if kind is JobKind.SCRIPT else None
    model = ModelSpec(definition="a.b.c") if script is None else None
    return JobSpec(name="job", kind=kind, model=model, script=script, plan=PlanSpec(**plan), ps=PsSpec(**(ps or {})))


def test_whole_slices_are_computed_in_float32_where_nothing_is_said() -> None:
    plan = job().plan

    assert (plan.precision, plan.micro_batch_size) == (ComputePrecision.FP32, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "fp16", "micro_batch_size": 4},
        {"precision": "bf16", "ps": {"replicas": 1}},
        {"precision": "bf16", "lr_scaling": "adascale"},
        {"precision": "fp16", "lr_scaling": "sqrt", "batch_schedule": {8: 2}},
        {"precision": "fp16", "micro_batch_size": 4, "kind": JobKind.EVALUATION, "ps": {"replicas": 1}},
    ],
)
def test_what_can_be_is_taken_and_reaches_the_worker(fields: dict[str, Any]) -> None:
    spec = job(**fields)

    assert JobSpec.model_validate_json(spec.model_dump_json()).plan.precision.value == fields["precision"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"precision": "half"}, "'fp32', 'bf16' or 'fp16'"),
        ({"micro_batch_size": -1}, "greater than or equal to 0"),
        (
            {"precision": "bf16", "ps": {"replicas": 1, "mode": "async"}},
            "with ps.mode async, which computes in float32",
        ),
        ({"precision": "fp16", "ps": {"replicas": 1, "mode": "local"}}, "plan.precision: fp16 with ps.mode local"),
        (
            {"precision": "fp16", "ps": {"replicas": 1}},
            "would apply the scaled gradients of rows; use --precision=bf16",
        ),
        ({"micro_batch_size": 4, "ps": {"replicas": 1}}, "rows are pushed once per batch; use more --logical_ranks"),
        ({"micro_batch_size": 4, "ps": {"replicas": 1, "mode": "sync"}}, "use a smaller --minibatch_size"),
        ({"precision": "fp16", "lr_scaling": "adascale", "batch_schedule": {8: 2}}, "the noise of scaled gradients"),
        ({"precision": "fp16", "lr_scaling": "linear"}, "--adaptive_batch=sqrt or linear with a --batch_schedule"),
        ({"precision": "bf16", "kind": JobKind.SCRIPT}, "a script sets it with torch.autocast"),
        ({"micro_batch_size": 4, "kind": JobKind.SCRIPT}, "a script sets it with step.backward"),
    ],
)
def test_what_cannot_be_right_is_refused_with_what_to_do(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        job(**fields)
