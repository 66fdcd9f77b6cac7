"""The kinds of Kubernetes objects that ElasticDL uses, and their paths in the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from elasticdl.errors import SpecError


class ResourceKind(NamedTuple):
    api_version: str  # as in `apiVersion`: "v1", "apps/v1"
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group; "" for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """The name that kubectl and error messages use: pods, elasticjobs.elasticdl.org."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


POD = ResourceKind("v1", "Pod", "pods")
CONFIG_MAP = ResourceKind("v1", "ConfigMap", "configmaps")
SECRET = ResourceKind("v1", "Secret", "secrets")
SERVICE = ResourceKind("v1", "Service", "services")
SERVICE_ACCOUNT = ResourceKind("v1", "ServiceAccount", "serviceaccounts")
EVENT = ResourceKind("v1", "Event", "events")
NODE = ResourceKind("v1", "Node", "nodes", namespaced=False)
NAMESPACE = ResourceKind("v1", "Namespace", "namespaces", namespaced=False)
PERSISTENT_VOLUME_CLAIM = ResourceKind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
RESOURCE_QUOTA = ResourceKind("v1", "ResourceQuota", "resourcequotas")
STATEFUL_SET = ResourceKind("apps/v1", "StatefulSet", "statefulsets")
ROLE = ResourceKind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = ResourceKind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
NETWORK_POLICY = ResourceKind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
LEASE = ResourceKind("coordination.k8s.io/v1", "Lease", "leases")
PRIORITY_CLASS = ResourceKind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False)
CRD = ResourceKind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
ELASTIC_JOB = ResourceKind("elasticdl.org/v1", "ElasticJob", "elasticjobs")

_KINDS = (
    POD,
    CONFIG_MAP,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    EVENT,
    NODE,
    NAMESPACE,
    PERSISTENT_VOLUME_CLAIM,
    RESOURCE_QUOTA,
    STATEFUL_SET,
    ROLE,
    ROLE_BINDING,
    NETWORK_POLICY,
    LEASE,
    PRIORITY_CLASS,
    CRD,
    ELASTIC_JOB,
)
_BY_NAME = {(kind.api_version, kind.kind): kind for kind in _KINDS}


def kind_of(document: Mapping[str, Any]) -> ResourceKind:
    """The kind that a document names in `apiVersion` and `kind`."""
    version, name = document.get("apiVersion", ""), document.get("kind", "")
    if (kind := _BY_NAME.get((version, name))) is None:
        kind_names = ", ".join(sorted({kind.kind for kind in _KINDS}))
        raise SpecError(f"unknown kind of object: {version!r} {name!r}; known are {kind_names}")
    return kind


def api_path(kind: ResourceKind, namespace: str = "", name: str = "", sub: str = "") -> str:
    """The path of one object; without a name, of all in a namespace; without a namespace, of all in the cluster."""
    parts = ["apis" if kind.group else "api", kind.api_version]
    if kind.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(kind.plural)
    if name:
        parts.append(quote(name, safe=""))
    if sub:
        parts.append(sub)
    return "/" + "/".join(parts)
