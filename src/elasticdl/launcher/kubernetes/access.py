"""Service accounts, rights of the master, its Service, and the network policies of a job."""

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

# All that a master does to the API; no Secrets but those its pods get, nothing outside its namespace.
MASTER_RULES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("", "pods", ("create", "get", "list", "watch", "delete")),
    ("", "configmaps", ("create", "get", "list", "watch", "update", "patch", "delete")),
    ("", "events", ("create", "patch")),
    ("elasticdl.org", "elasticjobs", ("get", "list", "watch")),
    ("elasticdl.org", "elasticjobs/status", ("patch",)),
)
# To its own StatefulSet alone: whose the job is, and at the end no pod for it any more.
OWN_SET_RULES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("apps", "statefulsets", ("get",)),
    ("apps", "statefulsets/scale", ("patch",)),
)
ALL_MASTER_RULES = (*MASTER_RULES, *OWN_SET_RULES)
_RBAC = "rbac.authorization.k8s.io"


def service_accounts(spec: JobSpec, owner: Owner) -> list[Document]:
    """One for workers and ps, without rights; one for the master, unless the person has named another."""
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
    """Role and RoleBinding of the master's own account; whoever names another account grants it these rules."""
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
            *(_policy_rule(*one) for one in MASTER_RULES),
            *(_policy_rule(*one) | {"resourceNames": [name]} for one in OWN_SET_RULES),
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
    """The Secrets its pods have as variables: an admission policy lets a master hand out what it may read itself."""
    names = sorted(cluster_spec(spec).env_from_secrets)
    return [_policy_rule("", "secrets", ("get",)) | {"resourceNames": names}] if names else []


def _policy_rule(group: str, resource: str, verbs: tuple[str, ...]) -> Document:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def master_service(spec: JobSpec, owner: Owner) -> Document:
    """The stable name of the master, whichever pod it is.

    Its address is published before the pod is ready: workers that knock too early knock again, which is quicker than
    to wait for a probe.
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
    """Pods of a job are reached by pods of the same job only; the master's metrics by those of namespaces that scrape.

    A namespace scrapes if it is labelled so, which only administrators can do.

    Probes and the API server's port-forward come from the kubelet of the node, which most networks do not subject
    to policies: the command line still reaches the master. Allowed traffic adds up over policies, so there are two.
    """
    if not cluster_spec(spec).network_policy:
        return []
    own = {"podSelector": {"matchLabels": selector_labels(spec)}}
    scraping = {"namespaceSelector": {"matchLabels": {SCRAPE_LABEL: "true"}}}
    ports = [{"protocol": "TCP", "port": metrics_port(spec)}]
    doors: dict[str, tuple[str, Document]] = {
        f"{spec.name}-pods": ("", {"from": [own]}),
        f"{spec.name}-metrics": (MASTER, {"from": [scraping], "ports": ports}),
    }
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": object_metadata(spec, name, role, owner=owner),
            "spec": {
                "podSelector": {"matchLabels": selector_labels(spec, role)},
                "policyTypes": ["Ingress"],
                "ingress": [entry],
            },
        }
        for name, (role, entry) in doors.items()
    ]
