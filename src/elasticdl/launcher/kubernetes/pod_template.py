"""The pod of a role: one container, without privileges, with the mounts of the job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from elasticdl.launcher.kubernetes import job_secrets, resources
from elasticdl.launcher.kubernetes.naming import (
    HEALTH_PATH,
    HEALTH_PORT,
    MASTER,
    MASTER_PORT,
    Document,
    cluster_spec,
    master_account,
    metrics_port,
    selector_labels,
    worker_account,
)
from elasticdl.spec import ClusterSpec, JobSpec, env

SPEC_MOUNT, SECRET_MOUNT, STATE_MOUNT = "/etc/elasticdl/spec", "/etc/elasticdl/secret", "/var/lib/elasticdl"
USER_ID = 10001
NODE_LOST_S = 30  # how long a pod stays on a node that does not respond
START_TIMEOUT_S = 900  # a master that does not listen by then is restarted
EXIT_GRACE_S = 5  # beyond the job's grace period, for the process to exit
_TOPOLOGY_KEYS = {"nodes": "kubernetes.io/hostname", "zones": "topology.kubernetes.io/zone"}


def pod_spec(
    spec: JobSpec,
    role: str,
    replica: str,
    *,
    memory_raises: int = 0,
    is_high: bool | None = None,
    environ: Mapping[str, str] | None = None,
    avoid_nodes: Sequence[str] = (),
) -> Document:
    """The spec of a pod. A master that exits is restarted in its pod; workers and ps are replaced by new pods."""
    cluster = cluster_spec(spec)
    volumes, mounts = _volumes(spec, role)
    pod: Document = {
        "restartPolicy": "Always" if role == MASTER else "Never",
        "serviceAccountName": master_account(spec) if role == MASTER else worker_account(spec),
        "automountServiceAccountToken": role == MASTER,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(spec.timing.grace_period_s) + EXIT_GRACE_S,
        "securityContext": _security_context(cluster),
        "containers": [
            {
                "name": role,
                "image": cluster.image,
                "imagePullPolicy": cluster.image_pull_policy,
                "command": ["python", "-P", "-m", "elasticdl.launcher.kubernetes.pod", role],
                "env": _environment(spec, replica, environ or {}),
                **({"envFrom": [{"secretRef": {"name": name}} for name in cluster.env_from_secrets]}
                   if cluster.env_from_secrets else {}),
                "resources": resources.resource_requirements(spec, role, memory_raises),
                **(_ports_and_probes(spec) if role == MASTER else {}),
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
    if cluster.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in cluster.image_pull_secrets]
    if cluster.node_selector:
        pod["nodeSelector"] = dict(cluster.node_selector)
    if cluster.scheduler:
        pod["schedulerName"] = cluster.scheduler
    if priority := resources.priority_class(spec, role, is_high):
        pod["priorityClassName"] = priority
    if avoid_nodes:
        pod["affinity"] = _affinity_away_from(avoid_nodes)
    if role != MASTER and cluster.spread != "none":
        pod["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": _TOPOLOGY_KEYS[cluster.spread],
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector_labels(spec, role)},
            }
        ]
    return pod


def _environment(spec: JobSpec, replica: str, environ: Mapping[str, str]) -> list[Document]:
    """The variables of a container. The user's override settings; those that say who the pod is override both."""
    defaults = {"HOME": "/tmp", "USER": "elasticdl"}  # USER_ID has no entry in the image's passwd
    variables = defaults | dict(environ) | cluster_spec(spec).env | {env.REPLICA: replica}
    fields = {env.POD_IP: "status.podIP", env.POD_NAME: "metadata.name", env.NAMESPACE: "metadata.namespace"}
    # Fields first: a later value may refer to them.
    references = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    return references + [{"name": name, "value": value} for name, value in variables.items() if name not in fields]


def _ports_and_probes(spec: JobSpec) -> Document:
    """Ports and probes of the master: whether its loop runs, over HTTP. See master/kubernetes/backend.py.

    Workers and ps have no probes: they call the master several times a second, so it notices a stuck one sooner than
    a kubelet would, and a kubelet that killed it would turn that into a failure.
    """

    def probe(**settings: int) -> Document:
        return {"httpGet": {"path": HEALTH_PATH, "port": "health"}, "timeoutSeconds": 5} | settings

    return {
        "ports": [
            {"name": "grpc", "containerPort": MASTER_PORT},
            {"name": "metrics", "containerPort": metrics_port(spec)},
            {"name": "health", "containerPort": HEALTH_PORT},
        ],
        # On a node where a hundred start at once it takes minutes. Killed for that, each would only start again.
        "startupProbe": probe(periodSeconds=2, failureThreshold=START_TIMEOUT_S // 2),
        "readinessProbe": probe(periodSeconds=2),
        "livenessProbe": probe(periodSeconds=10, failureThreshold=3),
    }


def _security_context(cluster: ClusterSpec) -> Document:
    user = {} if cluster.is_root else {"runAsNonRoot": True, "runAsUser": USER_ID, "runAsGroup": USER_ID}
    return {
        **user,
        "fsGroup": USER_ID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _affinity_away_from(nodes: Sequence[str]) -> Document:
    other_nodes = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": list(nodes)}]}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "preference": other_nodes}
    ]}}  # fmt: skip


def _tolerations(cluster: ClusterSpec) -> list[Document]:
    """The user's tolerations, and ours for lost nodes: by default Kubernetes keeps their pods for five minutes."""
    keys = {toleration.get("key") for toleration in cluster.tolerations}
    lost_node_taints = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    added: list[Document] = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": NODE_LOST_S}
        for key in lost_node_taints
        if key not in keys
    ]
    return [*map(dict, cluster.tolerations), *added]


def _volumes(spec: JobSpec, role: str) -> tuple[list[Document], list[Document]]:
    """The pod's volumes, each once, and the container's mounts of them."""
    cluster = cluster_spec(spec)
    has_claim = role == MASTER and bool(cluster.journal_claim)
    state = {"persistentVolumeClaim": {"claimName": cluster.journal_claim}} if has_claim else {"emptyDir": {}}
    volumes: list[Document] = [
        {"name": "spec", "configMap": {"name": f"{spec.name}-spec"}},
        {
            "name": "secret",
            "secret": {
                "secretName": f"{spec.name}-secret",
                "defaultMode": 0o440,
                "items": [{"key": name, "path": name} for name in job_secrets.secret_files(spec, role)],
            },
        },
        {"name": "state"} | state,
        {"name": "tmp", "emptyDir": {}},
    ]
    mounts: list[Document] = [
        {"name": "spec", "mountPath": SPEC_MOUNT, "readOnly": True},
        {"name": "secret", "mountPath": SECRET_MOUNT, "readOnly": True},
        # Several jobs may keep their state on one claim.
        {"name": "state", "mountPath": STATE_MOUNT} | ({"subPath": spec.name} if has_claim else {}),
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
