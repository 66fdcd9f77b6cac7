"""The pod of a role: one container, without privileges, with what the job mounts into it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from elasticdl.launcher import certificates, resources
from elasticdl.launcher.naming import (
    HEALTH_PATH,
    HEALTH_PORT,
    MASTER,
    MASTER_PORT,
    Document,
    chosen,
    cluster_of,
    master_account,
    metrics_port,
    worker_account,
)
from elasticdl.spec import ClusterSpec, JobSpec, env

SPEC_PLACE, SECRET_PLACE, STATE_PLACE = "/etc/elasticdl/spec", "/etc/elasticdl/secret", "/var/lib/elasticdl"
USER = 10001
NODE_LOST_S = 30  # how long a pod of a node that says nothing is waited for
START_S = 900  # a master that does not listen after so long is started anew
LEAVE_S = 5  # beyond the grace period of the job: time to end after leaving
_TOPOLOGY = {"nodes": "kubernetes.io/hostname", "zones": "topology.kubernetes.io/zone"}


def pod_spec(
    spec: JobSpec,
    role: str,
    replica: str,
    *,
    raises: int = 0,
    is_high: bool | None = None,
    environ: Mapping[str, str] | None = None,
    shunned: Sequence[str] = (),
) -> Document:
    """A master that ends is started again in its pod, until it says itself that it is over; others have a successor."""
    cluster = cluster_of(spec)
    volumes, mounts = _volumes(spec, role)
    found: Document = {
        "restartPolicy": "Always" if role == MASTER else "Never",
        "serviceAccountName": master_account(spec) if role == MASTER else worker_account(spec),
        "automountServiceAccountToken": role == MASTER,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(spec.timing.grace_s) + LEAVE_S,
        "securityContext": _security(cluster),
        "containers": [
            {
                "name": role,
                "image": cluster.image,
                "imagePullPolicy": cluster.pull_policy,
                "command": ["python", "-P", "-m", "elasticdl.launcher.pod", role],
                "env": _variables(spec, replica, environ or {}),
                **({"envFrom": [{"secretRef": {"name": name}} for name in cluster.environ_secrets]}
                   if cluster.environ_secrets else {}),
                "resources": resources.resources(spec, role, raises),
                **(_listening(spec) if role == MASTER else {}),
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
        "tolerations": _tolerations(cluster),
    }  # fmt: skip
    if cluster.pull_secrets:
        found["imagePullSecrets"] = [{"name": name} for name in cluster.pull_secrets]
    if cluster.node_selector:
        found["nodeSelector"] = dict(cluster.node_selector)
    if cluster.scheduler:
        found["schedulerName"] = cluster.scheduler
    if priority := resources.priority_class(spec, role, is_high):
        found["priorityClassName"] = priority
    if shunned:
        found["affinity"] = _away_from(shunned)
    if role != MASTER and cluster.spread != "none":
        found["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": _TOPOLOGY[cluster.spread],
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": chosen(spec, role)},
            }
        ]
    return found


def _variables(spec: JobSpec, replica: str, environ: Mapping[str, str]) -> list[Document]:
    """Ours win over the person's, which win over settings."""
    ours = {"HOME": "/tmp", "USER": "elasticdl"}  # the user has no entry in the image's passwd
    given = ours | dict(environ) | cluster_of(spec).environ | {env.REPLICA: replica}
    fields = {env.POD_IP: "status.podIP", env.POD_NAME: "metadata.name", env.NAMESPACE: "metadata.namespace"}
    # Fields first: a later value may refer to them.
    taken = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    return taken + [{"name": name, "value": value} for name, value in given.items() if name not in fields]


def _listening(spec: JobSpec) -> Document:
    """Ports and probes of the master: whether its loop goes round, asked over HTTP. See master/pods.py.

    Workers and ps have no probes: they speak to the master several times a second, so it knows sooner than a kubelet
    who is stuck; a kubelet that killed one would only make a failure of it.
    """

    def probe(**more: int) -> Document:
        return {"httpGet": {"path": HEALTH_PATH, "port": "health"}, "timeoutSeconds": 5} | more

    return {
        "ports": [
            {"name": "grpc", "containerPort": MASTER_PORT},
            {"name": "metrics", "containerPort": metrics_port(spec)},
            {"name": "health", "containerPort": HEALTH_PORT},
        ],
        # On a node where a hundred begin at once it takes minutes. Killed for that, each would only begin again.
        "startupProbe": probe(periodSeconds=2, failureThreshold=START_S // 2),
        "readinessProbe": probe(periodSeconds=2),
        "livenessProbe": probe(periodSeconds=10, failureThreshold=3),
    }


def _security(cluster: ClusterSpec) -> Document:
    user = {} if cluster.is_root else {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER}
    return {
        **user,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _away_from(nodes: Sequence[str]) -> Document:
    elsewhere = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": list(nodes)}]}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "preference": elsewhere}
    ]}}  # fmt: skip


def _tolerations(cluster: ClusterSpec) -> list[Document]:
    """Kubernetes's own would keep the pods of a lost node for five minutes."""
    keys = {toleration.get("key") for toleration in cluster.tolerations}
    lost = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    ours: list[Document] = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": NODE_LOST_S}
        for key in lost
        if key not in keys
    ]
    return [*map(dict, cluster.tolerations), *ours]


def _volumes(spec: JobSpec, role: str) -> tuple[list[Document], list[Document]]:
    """The pod's volumes, each once, and where the container has them."""
    cluster = cluster_of(spec)
    has_claim = role == MASTER and bool(cluster.state_claim)
    state = {"persistentVolumeClaim": {"claimName": cluster.state_claim}} if has_claim else {"emptyDir": {}}
    volumes: list[Document] = [
        {"name": "spec", "configMap": {"name": f"{spec.name}-spec"}},
        {
            "name": "secret",
            "secret": {
                "secretName": f"{spec.name}-secret",
                "defaultMode": 0o440,
                "items": [{"key": name, "path": name} for name in certificates.file_names(spec, role)],
            },
        },
        {"name": "state"} | state,
        {"name": "tmp", "emptyDir": {}},
    ]
    mounts: list[Document] = [
        {"name": "spec", "mountPath": SPEC_PLACE, "readOnly": True},
        {"name": "secret", "mountPath": SECRET_PLACE, "readOnly": True},
        # Several jobs may keep their state on one claim.
        {"name": "state", "mountPath": STATE_PLACE} | ({"subPath": spec.name} if has_claim else {}),
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    names: dict[tuple[str, str], str] = {}
    for volume in cluster.volumes:
        source = (volume.claim_name, volume.host_path)
        if source not in names:
            names[source] = f"volume-{len(names)}"
            claim = {"persistentVolumeClaim": {"claimName": volume.claim_name}}
            volumes.append(
                {"name": names[source]} | (claim if volume.claim_name else {"hostPath": {"path": volume.host_path}})
            )
        mount: Document = {"name": names[source], "mountPath": volume.mount_path}
        mount |= {"subPath": volume.sub_path} if volume.sub_path else {}
        mounts.append(mount | ({"readOnly": True} if volume.read_only else {}))
    return volumes, mounts
