"""What a person must be allowed to do on a cluster, and what of it is missing."""

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
    Kind,
)

MANIFEST = "deploy/manifests/submitter.yaml"
_AT_ONCE = 8


class Right(NamedTuple):
    verb: str
    kind: Kind
    sub: str = ""

    def __str__(self) -> str:
        resource = f"{self.kind.plural}/{self.sub}" if self.sub else self.kind.plural
        return f"{self.verb} {resource}"


_MADE = (STATEFUL_SET, CONFIG_MAP, SECRET, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, NETWORK_POLICY)

# To submit a job: make its objects, let it go, take back what was made if that fails.
SUBMIT = (
    *(Right(verb, kind) for kind in _MADE for verb in ("create", "delete")),
    Right("patch", STATEFUL_SET),
)
# To look at a job, reach its master, read its logs.
LOOK = (
    Right("get", STATEFUL_SET),
    Right("list", STATEFUL_SET),
    Right("get", CONFIG_MAP),
    Right("list", CONFIG_MAP),
    Right("get", SECRET),
    Right("list", POD),
    Right("get", POD, "log"),
    Right("get", POD, "portforward"),
    Right("create", POD, "portforward"),
)


def given_by(role: Mapping[str, Any]) -> list[Right]:
    """What a Role grants: Kubernetes lets nobody grant what they may not do themselves."""
    return [
        Right(verb, Kind(f"{group}/v1" if group else "v1", "", plural), sub)
        for rule in role.get("rules", [])
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources", [])
        for plural, _, sub in [resource.partition("/")]
        for verb in rule.get("verbs", [])
    ]


def missing(api: Api, namespace: str, rights: Iterable[Right]) -> list[Right]:
    """Those of `rights` that the person lacks in `namespace`."""
    asked = list({(right.verb, right.kind.group, right.kind.plural, right.sub): right for right in rights}.values())
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = threads.map(lambda right: api.may(right.verb, right.kind, namespace, right.sub), asked)
        return [right for right, is_granted in zip(asked, answers, strict=True) if not is_granted]


def told(lacking: Iterable[Right]) -> str:
    """create and delete secrets; get pods/log"""
    verbs: dict[str, list[str]] = {}
    for right in lacking:
        verb, _, resource = str(right).partition(" ")
        verbs.setdefault(resource, []).append(verb)
    return "; ".join(f"{_listed(each)} {resource}" for resource, each in verbs.items())


def _listed(words: list[str]) -> str:
    """a, b and c"""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def remedy(namespace: str) -> str:
    return (
        f"who administers the cluster grants it with `kubectl apply -f {MANIFEST}` and "
        f"`kubectl create rolebinding submitters --clusterrole=elasticdl-submitter --user=YOU -n {namespace}`"
    )
