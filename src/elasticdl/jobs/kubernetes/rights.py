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

# To submit a job: make its objects, let it go, take back what was made if that fails.
SUBMIT_RIGHTS = (
    *(AccessRight(verb, kind) for kind in _JOB_KINDS for verb in ("create", "delete")),
    AccessRight("patch", STATEFUL_SET),
)
# To look at a job, reach its master, read its logs.
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
    """What a Role grants: Kubernetes lets nobody grant what they may not do themselves."""
    return [
        AccessRight(verb, ResourceKind(f"{group}/v1" if group else "v1", "", plural), sub)
        for rule in role.get("rules", [])
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources", [])
        for plural, _, sub in [resource.partition("/")]
        for verb in rule.get("verbs", [])
    ]


def missing_rights(api: Api, namespace: str, rights: Iterable[AccessRight]) -> list[AccessRight]:
    """Those of `rights` that the person lacks in `namespace`."""
    distinct = list(
        {(right.verb, right.kind.group, right.kind.plural, right.subresource): right for right in rights}.values()
    )
    with ThreadPoolExecutor(_MAX_PARALLEL) as threads:
        answers = threads.map(
            lambda right: api.is_allowed(right.verb, right.kind, namespace, right.subresource), distinct
        )
        return [right for right, is_granted in zip(distinct, answers, strict=True) if not is_granted]


def describe_rights(lacking: Iterable[AccessRight]) -> str:
    """create and delete secrets; get pods/log"""
    verbs: dict[str, list[str]] = {}
    for right in lacking:
        verb, _, resource = str(right).partition(" ")
        verbs.setdefault(resource, []).append(verb)
    return "; ".join(f"{_join_words(each)} {resource}" for resource, each in verbs.items())


def _join_words(words: list[str]) -> str:
    """a, b and c"""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def grant_instructions(namespace: str) -> str:
    return (
        f"who administers the cluster grants it with `kubectl apply -f {SUBMITTER_MANIFEST}` and "
        f"`kubectl create rolebinding submitters --clusterrole=elasticdl-submitter --user=YOU -n {namespace}`"
    )
