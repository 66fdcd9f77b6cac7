from __future__ import annotations

import json

import pytest

from elasticdl.errors import AccessDenied, PermanentError, SpecError, TransientError
from elasticdl.kube import errors, kinds
from elasticdl.kube.errors import ApiCall, error_from_response

CALL = ApiCall("create", kinds.POD, "team", "a-worker-0")


def status(code: int, reason: str, message: str) -> bytes:
    return json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message}).encode()


@pytest.mark.parametrize(
    ("code", "reason", "expected", "family"),
    [
        (401, "Unauthorized", errors.Unauthorized, AccessDenied),
        (403, "Forbidden", errors.Forbidden, AccessDenied),
        (404, "NotFound", errors.NotFound, PermanentError),
        (409, "AlreadyExists", errors.AlreadyExists, PermanentError),
        (409, "Conflict", errors.Conflict, PermanentError),
        (410, "Expired", errors.Gone, TransientError),
        (422, "Invalid", errors.InvalidObject, SpecError),
        (400, "BadRequest", errors.InvalidObject, SpecError),
        (429, "TooManyRequests", errors.ApiUnavailable, TransientError),
        (503, "ServiceUnavailable", errors.ApiUnavailable, TransientError),
    ],
)
def test_a_response_becomes_the_error_that_says_what_to_do(
    code: int, reason: str, expected: type[Exception], family: type[Exception]
) -> None:
    error = error_from_response(CALL, code, status(code, reason, "the message"))

    assert type(error) is expected and isinstance(error, family)
    assert "create pods a-worker-0 in namespace team" in str(error) and "the message" in str(error)


def test_a_missing_right_is_named_with_the_role_that_grants_it() -> None:
    message = 'pods is forbidden: User "x" cannot get resource "pods/log" in API group "" in the namespace "team"'

    error = str(
        error_from_response(ApiCall("get", kinds.POD, "team", "a", "log"), 403, status(403, "Forbidden", message))
    )

    assert 'a Role with verbs ["get"], resources ["pods/log"], apiGroups [""]' in error
    assert "deploy/" in error and "elasticdl doctor" in error


def test_a_missing_right_on_an_object_without_a_namespace_needs_a_cluster_role() -> None:
    error = str(error_from_response(ApiCall("list", kinds.NODE), 403, status(403, "Forbidden", "cannot list nodes")))

    assert "list nodes in the cluster" in error and "a ClusterRole with" in error


def test_an_exceeded_quota_is_not_taken_for_a_missing_right() -> None:
    message = 'pods "a" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2'

    error = str(error_from_response(CALL, 403, status(403, "Forbidden", message)))

    assert "exceeded quota: small" in error and "Role" not in error


def test_a_cluster_without_the_custom_resource_gets_the_hint_to_install_the_operator() -> None:
    error = error_from_response(ApiCall("list", kinds.ELASTIC_JOB, "team"), 404, b"404 page not found\n")

    assert isinstance(error, errors.NotFound)
    assert "does not know elasticjobs.elasticdl.org" in str(error) and "install the operator" in str(error)
