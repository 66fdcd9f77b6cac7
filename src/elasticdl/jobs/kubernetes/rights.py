"""The rights a user needs on a cluster to submit and view jobs, and which of them are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from elasticdl.kube.api import Api
from elasticdl.kube.kinds import (
    CONFIG_MAP,
    NETWORK_POLICY,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    ResourceKind,
)

SUBMITTER_MANIFEST = "deploy/manifests/submitter.yaml"
_MAX_PARALLEL = 8


class AccessRight(NamedTuple):
    verb: str
    kind: ResourceKind
    subresource: str = ""

    def __str__(self) -> str:
        resource = f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural
        return f"{self.verb} {resource}"


_JOB_KINDS = (STATEFUL_SET, CONFIG_MAP, SECRET, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, NETWORK_POLICY)

# To submit a job: create its objects, start it, and delete them again if that fails.
SUBMIT_RIGHTS = (
    *(AccessRight(verb, kind) for kind in _JOB_KINDS for verb in ("create", "delete")),
    AccessRight("patch", STATEFUL_SET),
)
# To see a job's status, reach its master, and read its logs.
VIEW_RIGHTS = (
    AccessRight("get", STATEFUL_SET),
    AccessRight("list", STATEFUL_SET),
    AccessRight("get", CONFIG_MAP),
    AccessRight("list", CONFIG_MAP),
    AccessRight("get", SECRET),
    AccessRight("list", POD),
    AccessRight("get", POD, "log"),
    AccessRight("get", POD, "portforward"),
    AccessRight("create", POD, "portforward"),
)


def rights_of_role(role: Mapping[str, Any]) -> list[AccessRight]:
    """The rights that a Role grants. Kubernetes lets only users who have them create it."""
    return [
        AccessRight(verb, ResourceKind(f"{group}/v1" if group else "v1", "", plural), sub)
        for rule in role.get("rules", [])
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources", [])
        for plural, _, sub in [resource.partition("/")]
        for verb in rule.get("verbs", [])
    ]


def missing_rights(api: Api, namespace: str, rights: Iterable[AccessRight]) -> list[AccessRight]:
    """The `rights` that the user lacks in `namespace`."""
    distinct = list(
        {(right.verb, right.kind.group, right.kind.plural, right.subresource): right for right in rights}.values()
    )
    with ThreadPoolExecutor(_MAX_PARALLEL) as threads:
        answers = threads.map(
            lambda right: api.is_allowed(right.verb, right.kind, namespace, right.subresource), distinct
        )
        return [right for right, is_granted in zip(distinct, answers, strict=True) if not is_granted]


def describe_rights(rights: Iterable[AccessRight]) -> str:
    """Text such as "create and delete secrets; get pods/log"."""
    verbs_by_resource: dict[str, list[str]] = {}
    for right in rights:
        verb, _, resource = str(right).partition(" ")
        verbs_by_resource.setdefault(resource, []).append(verb)
    return "; ".join(f"{_join_words(verbs)} {resource}" for resource, verbs in verbs_by_resource.items())


def _join_words(words: list[str]) -> str:
    """Text such as "a, b and c"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def grant_instructions(namespace: str) -> str:
    return (
        f"an administrator of the cluster can grant this with `kubectl apply -f {SUBMITTER_MANIFEST}` and "
        f"`kubectl create rolebinding submitters --clusterrole=elasticdl-submitter --user=YOU -n {namespace}`"
    )
