"""The service accounts of a job, the rights and the Service of its master, and its network policies."""

from __future__ import annotations

from elasticdl.launcher.kubernetes.naming import (
    MASTER,
    MASTER_PORT,
    SCRAPE_LABEL,
    WORKER,
    Document,
    Owner,
    cluster_spec,
    master_account,
    master_name,
    metrics_port,
    object_metadata,
    selector_labels,
    worker_account,
)
from elasticdl.spec import JobSpec

# Everything a master does through the API: nothing outside its namespace, and of Secrets only those its pods get.
MASTER_RULES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("", "pods", ("create", "get", "list", "watch", "delete")),
    ("", "configmaps", ("create", "get", "list", "watch", "update", "patch", "delete")),
    ("", "events", ("create", "patch")),
    ("elasticdl.org", "elasticjobs", ("get", "list", "watch")),
    ("elasticdl.org", "elasticjobs/status", ("patch",)),
)
# Only for its own StatefulSet: the master reads who owns the job, and at the end scales the set to zero.
OWN_SET_RULES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("apps", "statefulsets", ("get",)),
    ("apps", "statefulsets/scale", ("patch",)),
)
ALL_MASTER_RULES = (*MASTER_RULES, *OWN_SET_RULES)
_RBAC = "rbac.authorization.k8s.io"


def service_accounts(spec: JobSpec, owner: Owner) -> list[Document]:
    """One for workers and ps, without rights; one for the master, unless the user has named another."""
    names = {worker_account(spec): WORKER}
    if not cluster_spec(spec).service_account:
        names[master_account(spec)] = MASTER
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": object_metadata(spec, name, role, owner=owner),
            "automountServiceAccountToken": False,  # the master's pod asks for its token itself
        }
        for name, role in names.items()
    ]


def role_and_binding(spec: JobSpec, owner: Owner) -> list[Document]:
    """Role and RoleBinding of the master's own account; none for an account that the user has named."""
    if cluster_spec(spec).service_account:
        return []
    name = master_name(spec)
    account = {"kind": "ServiceAccount", "name": master_account(spec)}
    if cluster_spec(spec).namespace:
        account["namespace"] = cluster_spec(spec).namespace
    role: Document = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": object_metadata(spec, name, MASTER, owner=owner),
        "rules": [
            *(_policy_rule(*rule) for rule in MASTER_RULES),
            *(_policy_rule(*rule) | {"resourceNames": [name]} for rule in OWN_SET_RULES),
            *_secrets_rule(spec),
        ],
    }
    binding: Document = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": object_metadata(spec, name, MASTER, owner=owner),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
        "subjects": [account],
    }
    return [role, binding]


def _secrets_rule(spec: JobSpec) -> list[Document]:
    """The Secrets that pods have as variables: an admission policy lets a master hand out only what it may read."""
    names = sorted(cluster_spec(spec).env_from_secrets)
    return [_policy_rule("", "secrets", ("get",)) | {"resourceNames": names}] if names else []


def _policy_rule(group: str, resource: str, verbs: tuple[str, ...]) -> Document:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def master_service(spec: JobSpec, owner: Owner) -> Document:
    """The stable name of the master, whichever pod it is.

    Its address is published before the pod is ready: a worker that connects too early tries again, which is quicker
    than waiting for a probe.
    """
    ports = {"grpc": MASTER_PORT, "metrics": metrics_port(spec)}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": object_metadata(spec, master_name(spec), MASTER, owner=owner),
        "spec": {
            "selector": selector_labels(spec, MASTER),
            "publishNotReadyAddresses": True,
            "ports": [{"name": name, "port": port, "targetPort": name} for name, port in ports.items()],
        },
    }


def network_policies(spec: JobSpec, owner: Owner) -> list[Document]:
    """Allow traffic to pods of a job from pods of the same job only, and to the master's metrics from scrapers.

    A scraper is any pod of a namespace that has SCRAPE_LABEL, which only administrators can set.

    Probes and the API server's port-forward come from the kubelet of the node, which most networks do not subject
    to policies: the command line still reaches the master. Policies are additive, so there are two.
    """
    if not cluster_spec(spec).network_policy:
        return []
    own_pods = {"podSelector": {"matchLabels": selector_labels(spec)}}
    scrapers = {"namespaceSelector": {"matchLabels": {SCRAPE_LABEL: "true"}}}
    ports = [{"protocol": "TCP", "port": metrics_port(spec)}]
    policies: dict[str, tuple[str, Document]] = {
        f"{spec.name}-pods": ("", {"from": [own_pods]}),
        f"{spec.name}-metrics": (MASTER, {"from": [scrapers], "ports": ports}),
    }
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": object_metadata(spec, name, role, owner=owner),
            "spec": {
                "podSelector": {"matchLabels": selector_labels(spec, role)},
                "policyTypes": ["Ingress"],
                "ingress": [ingress],
            },
        }
        for name, (role, ingress) in policies.items()
    ]
