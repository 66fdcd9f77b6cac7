from __future__ import annotations

from typing import Any

import pytest

from elasticdl.operator.job_status import explain_unsupported_change
from elasticdl.spec.load import resolve_elastic_job


def resource(**spec: Any) -> dict[str, Any]:
    whole = {"model": {"definition": "a.b.c"}, "workers": {"replicas": 3}, "cluster": {"image": "i:1"}} | spec
    return {"metadata": {"name": "mnist", "namespace": "team"}, "spec": whole}


@pytest.mark.parametrize(
    ("begun", "asked"),
    [
        ({}, {}),
        ({}, {"workers": {"replicas": 2}}),
        ({"workers": {"replicas": 3, "max": 8}}, {"workers": {"replicas": 8, "max": 8}}),
        ({"ps": {"replicas": 1}}, {"ps": {"replicas": 4}}),
        ({}, {"suspend": True}),
        ({}, {"cluster": {"image": "i:1", "tls": True}}),  # what is the default anyway
    ],
)
def test_wishes_and_suspend_are_followed(begun: dict[str, Any], asked: dict[str, Any]) -> None:
    assert explain_unsupported_change(resolve_elastic_job(resource(**begun)), resource(**asked)) == ""


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"plan": {"epochs": 3}}, "plan.epochs"),
        ({"cluster": {"image": "i:2"}}, "cluster.image"),
        ({"workers": {"replicas": 3, "max": 8}}, "workers.max"),
        ({"workers": {"replicas": 5}}, "workers.replicas 5 is outside its min 1 .. max 3"),
        ({"model": None}, "needs model.definition"),
    ],
)
def test_anything_else_is_named(asked: dict[str, Any], words: str) -> None:
    assert words in explain_unsupported_change(resolve_elastic_job(resource()), resource(**asked))


def test_the_resource_is_not_changed() -> None:
    asked = resource(workers={"replicas": 5})

    explain_unsupported_change(resolve_elastic_job(resource()), asked)

    assert asked == resource(workers={"replicas": 5})
