from __future__ import annotations

import pytest

from elasticdl.errors import SpecError
from elasticdl.kube import kinds


@pytest.mark.parametrize(
    ("kind", "parts", "expected"),
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
def test_a_kind_has_paths_of_objects_and_of_lists(
    kind: kinds.ResourceKind, parts: dict[str, str], expected: str
) -> None:
    assert kinds.api_path(kind, **parts) == expected


def test_a_document_names_its_kind() -> None:
    assert kinds.kind_of({"apiVersion": "apps/v1", "kind": "StatefulSet"}) is kinds.STATEFUL_SET


def test_a_document_of_an_unknown_kind_is_refused_with_the_known_kinds() -> None:
    with pytest.raises(SpecError, match=r"'v1' 'Deployment'; known are .*ConfigMap.*Pod"):
        kinds.kind_of({"apiVersion": "v1", "kind": "Deployment"})
