"""Errors of calls to the API server, by what the caller can do. Does not import the Kubernetes client.

ApiError
├── NoCluster        no kubeconfig, or no such context                          (SpecError)
├── Unauthorized     the credentials are not accepted                           (AccessDenied)
├── Forbidden        a right is missing, or a quota or rule refuses the call    (AccessDenied)
├── InvalidObject    the object is refused as it is                             (SpecError)
├── AlreadyExists    an object of this name exists                              (PermanentError)
├── NotFound         the object, its namespace or its kind does not exist       (PermanentError)
├── Conflict         the object was changed since it was read                   (PermanentError)
├── Gone             the version to watch from is too old: list again           (TransientError)
└── ApiUnavailable   no answer, or a request to try again later                 (TransientError)
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from elasticdl.errors import AccessDenied, ElasticDLError, PermanentError, SpecError, TransientError
from elasticdl.kube.kinds import ResourceKind


class ApiError(ElasticDLError):
    """A call to the API server failed."""


class NoCluster(ApiError, SpecError):
    """There is no cluster to connect to. The message names the kubeconfig, and how to choose a cluster."""


class Unauthorized(ApiError, AccessDenied):
    """The API server does not accept the credentials."""


class Forbidden(ApiError, AccessDenied):
    """The caller is known but may not do this: a right is missing, or a quota or rule of the namespace refuses it."""


class InvalidObject(ApiError, SpecError):
    """The API server refuses the object as it is."""


class AlreadyExists(ApiError, PermanentError):
    """An object of this name exists already."""


class NotFound(ApiError, PermanentError):
    """The object, its namespace or its kind does not exist."""


class Conflict(ApiError, PermanentError):
    """The object was changed or replaced since it was read."""


class Gone(ApiError, TransientError):
    """The version to watch from is too old: list again."""


class ApiUnavailable(ApiError, TransientError):
    """No answer, or a request to try again later. Whether a change was made is unknown."""


class ApiCall(NamedTuple):
    """A call to the API server, in the terms of a Role."""

    verb: str
    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    sub: str = ""  # subresource

    def __str__(self) -> str:
        scope = f" in namespace {self.namespace}" if self.namespace else " in the cluster"
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {self.resource}{name}{scope}"

    @property
    def resource(self) -> str:
        plural = f"{self.kind.plural}/{self.sub}" if self.sub else self.kind.plural
        return f"{plural}.{self.kind.group}" if self.kind.group else plural


def error_from_response(call: ApiCall, code: int, body: bytes) -> ApiError:
    """The error for a response with a status code of 400 or above."""
    status = _status(body)
    reason, message = str(status.get("reason", "")), str(status.get("message") or body[:500].decode(errors="replace"))
    match code:
        case 401:
            return Unauthorized(f"{call}: the API server does not accept the credentials ({message}); log in again")
        case 403:
            return Forbidden(f"{call} is forbidden: {message}; {_grant_hint(call, message)}")
        case 404 if not status:
            return NotFound(
                f"{call}: the cluster does not know {call.resource} of {call.kind.api_version}{_crd_hint(call)}"
            )
        case 404:
            return NotFound(f"{call}: {message}")
        case 409 if reason == "AlreadyExists":
            return AlreadyExists(f"{call}: {message}")
        case 409:
            return Conflict(f"{call}: {message}")
        case 410:
            return Gone(f"{call}: {message}")
        case 408 | 425 | 429:
            return ApiUnavailable(f"{call}: {message}")
        case _ if code >= 500:
            return ApiUnavailable(f"{call}: the API server answered {code}: {message}")
    return InvalidObject(f"{call}: {message}")


def _status(body: bytes) -> dict[str, Any]:
    """The Status object of a response; {} if it has none, for example if it is a proxy's."""
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) and document.get("kind") == "Status" else {}


def _grant_hint(call: ApiCall, message: str) -> str:
    if "cannot" not in message:  # not a missing right but an admission rule, which the message names
        return (
            f"a quota or a rule of namespace {call.namespace or '(none)'} refuses it: ask the cluster's administrator"
        )
    kind = "Role" if call.namespace else "ClusterRole"
    group = f"apiGroups [{call.kind.group!r}]".replace("'", '"')
    resource = f"{call.kind.plural}/{call.sub}" if call.sub else call.kind.plural
    fix = f'a {kind} with verbs ["{call.verb}"], resources ["{resource}"], {group} grants this right'
    return f"{fix}: see deploy/, or run `elasticdl doctor`"


def _crd_hint(call: ApiCall) -> str:
    return "; install the operator from deploy/" if call.kind.group == "elasticdl.org" else ""
