"""What the API server may answer, split by what the caller can do. Needs no Kubernetes client.

ApiError
├── NoCluster      nobody to speak to: no kubeconfig, or no such context    (SpecError)
├── NotLoggedIn    it does not know us                                      (AccessDenied)
├── Forbidden      it knows us, and we may not; or a quota is used up       (AccessDenied)
├── Invalid        it refuses the object as it stands                       (SpecError)
├── AlreadyThere   an object of this name exists                            (PermanentError)
├── NotThere       the object, its namespace or its kind does not exist     (PermanentError)
├── Conflict       somebody else changed it since we read it                (PermanentError)
├── Gone           the version to watch from is forgotten: list again       (TransientError)
└── ApiAway        no answer, or "not now": try again                       (TransientError)
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from elasticdl.errors import AccessDenied, ElasticDLError, PermanentError, SpecError, TransientError
from elasticdl.kube.kinds import ResourceKind


class ApiError(ElasticDLError):
    """Anything the API server, or the way to it, may answer instead of what was asked for."""


class NoCluster(ApiError, SpecError):
    """There is nobody to speak to. The message says where we looked and how to name a cluster."""


class Unauthorized(ApiError, AccessDenied):
    """The API server does not accept our credentials."""


class Forbidden(ApiError, AccessDenied):
    """The API server knows us but refuses: a right is missing, or a quota or rule of the namespace says no."""


class InvalidObject(ApiError, SpecError):
    """The API server refuses the object as it stands."""


class AlreadyExists(ApiError, PermanentError):
    """An object of this name exists already."""


class NotFound(ApiError, PermanentError):
    """The object, its namespace or its kind does not exist."""


class Conflict(ApiError, PermanentError):
    """Somebody else changed or replaced the object since we read it."""


class Gone(ApiError, TransientError):
    """The version to go on from is too old to be remembered: list again."""


class ApiUnavailable(ApiError, TransientError):
    """No answer, or a request to come later. Whether a change was made is unknown."""


class ApiCall(NamedTuple):
    """What was asked, as a Role names it."""

    verb: str
    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    sub: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else " in the cluster"
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {self.resource}{name}{where}"

    @property
    def resource(self) -> str:
        plural = f"{self.kind.plural}/{self.sub}" if self.sub else self.kind.plural
        return f"{plural}.{self.kind.group}" if self.kind.group else plural


def error_from_response(call: ApiCall, code: int, body: bytes) -> ApiError:
    """The error for an answer with a code of 400 and above."""
    status = _status(body)
    reason, message = str(status.get("reason", "")), str(status.get("message") or body[:500].decode(errors="replace"))
    match code:
        case 401:
            return Unauthorized(f"{call}: the API server does not accept our credentials ({message}); log in again")
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
    """The Status object of an answer; {} where a proxy or an unknown path answered."""
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) and document.get("kind") == "Status" else {}


def _grant_hint(call: ApiCall, message: str) -> str:
    if "cannot" not in message:  # not a missing right but an admission rule, whose words name it
        return f"a quota or a rule of namespace {call.namespace or '(none)'} says so: ask whoever runs the cluster"
    kind = "Role" if call.namespace else "ClusterRole"
    group = f"apiGroups [{call.kind.group!r}]".replace("'", '"')
    resource = f"{call.kind.plural}/{call.sub}" if call.sub else call.kind.plural
    fix = f'a {kind} with verbs ["{call.verb}"], resources ["{resource}"], {group} grants it'
    return f"{fix}: see deploy/, or run `elasticdl doctor`"


def _crd_hint(call: ApiCall) -> str:
    return "; install the operator from deploy/" if call.kind.group == "elasticdl.org" else ""
