from __future__ import annotations

import pytest

from elasticdl.errors import SpecError
from elasticdl.kube import kinds


@pytest.mark.parametrize(
    ("kind", "where", "expected"),
    [
        (kinds.POD, {"namespace": "a", "name": "b"}, "/api/v1/namespaces/a/pods/b"),
        (kinds.POD, {"namespace": "a", "name": "b", "sub": "log"}, "/api/v1/namespaces/a/pods/b/log"),
        (kinds.POD, {}, "/api/v1/pods"),
        (kinds.STATEFUL_SET, {"namespace": "a"}, "/apis/apps/v1/namespaces/a/statefulsets"),
        (kinds.NODE, {"namespace": "a", "name": "b"}, "/api/v1/nodes/b"),
        (
            kinds.ELASTIC_JOB,
            {"namespace": "a", "name": "../x"},
            "/apis/elasticdl.org/v1/namespaces/a/elasticjobs/..%2Fx",
        ),
    ],
)
def test_an_object_has_one_place_in_the_api(kind: kinds.ResourceKind, where: dict[str, str], expected: str) -> None:
    assert kinds.api_path(kind, **where) == expected


def test_a_document_names_its_kind() -> None:
    assert kinds.kind_of({"apiVersion": "apps/v1", "kind": "StatefulSet"}) is kinds.STATEFUL_SET


def test_a_document_of_an_unknown_kind_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(SpecError, match=r"'v1' 'Deployment'; known are .*ConfigMap.*Pod"):
        kinds.kind_of({"apiVersion": "v1", "kind": "Deployment"})
