"""The Kubernetes objects that deploy the scheduler of a namespace: service account, roles and Deployment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticdl.scheduler.kubernetes import health
from elasticdl.scheduler.kubernetes.server import LEASE_NAME

Document = dict[str, Any]
Rules = tuple[tuple[str, str, tuple[str, ...]], ...]

NAME = "elasticdl-scheduler"
LABELS = {"app.kubernetes.io/name": "elasticdl", "app.kubernetes.io/component": "scheduler"}

# All its calls to the API: it reads no Secrets, and creates and deletes nothing but its Lease.
CLUSTER_RULES: Rules = (
    ("", "nodes", ("list", "watch")),  # the capacity
    ("", "pods", ("list",)),  # what other pods use of it
)
RULES: Rules = (
    ("elasticdl.org", "elasticjobs", ("list", "watch", "patch")),  # jobs that want workers; how many each gets, and why
    ("", "pods", ("watch",)),  # when devices become free
    ("", "configmaps", ("list",)),  # what masters measured
    ("coordination.k8s.io", "leases", ("create",)),  # RBAC cannot restrict creation by name
)
LEASE_RULES: Rules = (("coordination.k8s.io", "leases", ("get", "update")),)  # only its own
_RBAC = "rbac.authorization.k8s.io"


def scheduler_objects(namespace: str, image: str, arguments: Sequence[str], port: int = health.PORT) -> list[Document]:
    """Returns objects for `kubectl apply`. `arguments` are those of `elasticdl scheduler`, `port` serves the probes."""
    in_namespace = {"namespace": namespace}
    cluster_role_name = f"{NAME}-{namespace}"  # one per namespace
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(NAME) | in_namespace},
        _role("ClusterRole", _metadata(cluster_role_name), [_rule(*rule) for rule in CLUSTER_RULES]),
        _binding("ClusterRole", _metadata(cluster_role_name), namespace),
        _role(
            "Role",
            _metadata(NAME) | in_namespace,
            [
                *(_rule(*rule) for rule in RULES),
                *(_rule(*rule) | {"resourceNames": [LEASE_NAME]} for rule in LEASE_RULES),
            ],
        ),
        _binding("Role", _metadata(NAME) | in_namespace, namespace),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _metadata(NAME) | in_namespace,
            "spec": {
                "replicas": 1,  # more replicas would wait for the Lease
                "selector": {"matchLabels": dict(LABELS)},
                "template": {"metadata": {"labels": dict(LABELS)}, "spec": _pod(image, arguments, port)},
            },
        },
    ]


def _pod(image: str, arguments: Sequence[str], port: int) -> Document:
    """Like the operator's pod: not root, and only /tmp is writable."""
    container = {
        "name": "scheduler",
        "image": image,
        "command": ["python", "-P", "-m", "elasticdl.cli", "scheduler", *arguments, f"--port={port}"],
        "ports": [{"name": "health", "containerPort": port}],
        # Imports take some seconds before the first answer.
        "startupProbe": _probe(health.LIVENESS, periodSeconds=2, failureThreshold=60),
        "livenessProbe": _probe(health.LIVENESS, periodSeconds=20, failureThreshold=3),
        "readinessProbe": _probe(health.READINESS, periodSeconds=5),
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    return {
        "serviceAccountName": NAME,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }


def _probe(path: str, **when: int) -> Document:
    return {"httpGet": {"path": path, "port": "health"}, "timeoutSeconds": 5, **when}


def _metadata(name: str) -> Document:
    return {"name": name, "labels": dict(LABELS)}


def _rule(group: str, resource: str, verbs: tuple[str, ...]) -> Document:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def _role(kind: str, metadata: Document, rules: list[Document]) -> Document:
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}


def _binding(kind: str, metadata: Document, namespace: str) -> Document:
    """Binds the role of the same name to the service account."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": metadata["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }
