from __future__ import annotations

from typing import Any

import pytest

from elasticdl.operator.job_status import explain_unsupported_change
from elasticdl.spec.load import resolve_elastic_job


def resource(**fields: Any) -> dict[str, Any]:
    spec = {"model": {"definition": "a.b.c"}, "workers": {"replicas": 3}, "cluster": {"image": "i:1"}} | fields
    return {"metadata": {"name": "mnist", "namespace": "team"}, "spec": spec}


@pytest.mark.parametrize(
    ("running", "change"),
    [
        ({}, {}),
        ({}, {"workers": {"replicas": 2}}),
        ({"workers": {"replicas": 3, "max": 8}}, {"workers": {"replicas": 8, "max": 8}}),
        ({"ps": {"replicas": 1}}, {"ps": {"replicas": 4}}),
        ({}, {"suspend": True}),
        ({}, {"cluster": {"image": "i:1", "tls": True}}),  # the default
    ],
)
def test_a_running_job_adopts_replicas_and_suspend(running: dict[str, Any], change: dict[str, Any]) -> None:
    assert explain_unsupported_change(resolve_elastic_job(resource(**running)), resource(**change)) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"plan": {"epochs": 3}}, "plan.epochs"),
        ({"cluster": {"image": "i:2"}}, "cluster.image"),
        ({"workers": {"replicas": 3, "max": 8}}, "workers.max"),
        ({"workers": {"replicas": 5}}, "workers.replicas 5 is outside min 1 .. max 3"),
        ({"model": None}, "needs model.definition"),
    ],
)
def test_any_other_change_is_named(change: dict[str, Any], words: str) -> None:
    assert words in explain_unsupported_change(resolve_elastic_job(resource()), resource(**change))


def test_explaining_leaves_the_resource_as_it_is() -> None:
    scaled = resource(workers={"replicas": 5})

    explain_unsupported_change(resolve_elastic_job(resource()), scaled)

    assert scaled == resource(workers={"replicas": 5})
