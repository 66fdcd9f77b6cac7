"""Names, labels and owners of the objects of a job."""

from __future__ import annotations

from typing import Any, NamedTuple

from elasticdl.spec import ClusterSpec, JobSpec

Document = dict[str, Any]

MASTER_PORT = 50001
METRICS_PORT = 50002
HEALTH_PORT, HEALTH_PATH = 50003, "/healthz"  # of a master, for the kubelet

JOB_LABEL = "elasticdl.org/job"
ROLE_LABEL = "elasticdl.org/role"
REPLICA_LABEL = "elasticdl.org/replica"
SCRAPE_LABEL = "elasticdl.org/scrape-metrics"  # of a namespace whose pods may read metrics
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"

MASTER, WORKER, PS = "master", "worker", "ps"
STATUS = "status"  # of the ConfigMap in which a master reports the status of its job
ROLES = (MASTER, WORKER, PS)


class Owner(NamedTuple):
    """The owner of an object, which is deleted together with it."""

    api_version: str
    kind: str
    name: str
    uid: str

    @classmethod
    def from_object(cls, document: Document) -> Owner:
        """An object that was read from the API, as the owner of others."""
        metadata = document["metadata"]
        return cls(document["apiVersion"], document["kind"], metadata["name"], metadata["uid"])

    @property
    def reference(self) -> Document:
        """The owner as controller: `kubectl drain` and autoscalers move only pods that have one."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }


def cluster_spec(spec: JobSpec) -> ClusterSpec:
    assert spec.cluster is not None, f"{spec.name} is a job of processes, not of pods"
    return spec.cluster


def object_labels(spec: JobSpec, role: str = "", replica: str = "") -> dict[str, str]:
    return job_labels(spec.name, role, replica)


def job_labels(job: str, role: str = "", replica: str = "") -> dict[str, str]:
    labels = {"app.kubernetes.io/name": "elasticdl", "app.kubernetes.io/instance": job, JOB_LABEL: job}
    if role:
        labels[ROLE_LABEL] = role
    if replica:
        labels[REPLICA_LABEL] = replica
    return labels


def selector_labels(spec: JobSpec, role: str = "") -> dict[str, str]:
    """The labels that select the pods of a job (and role)."""
    return {JOB_LABEL: spec.name} | ({ROLE_LABEL: role} if role else {})


def label_selector(spec: JobSpec, role: str = "") -> str:
    """`selector_labels` as text, for a list or a watch."""
    return ",".join(f"{name}={value}" for name, value in selector_labels(spec, role).items())


def object_metadata(
    spec: JobSpec, name: str, role: str = "", *, replica: str = "", owner: Owner | None = None, queue: bool = False
) -> Document:
    cluster = cluster_spec(spec)
    metadata: Document = {"name": name}
    if cluster.namespace:
        metadata["namespace"] = cluster.namespace
    metadata["labels"] = object_labels(spec, role, replica)
    if queue and cluster.queue:
        metadata["labels"][QUEUE_LABEL] = cluster.queue
    if owner:
        metadata["ownerReferences"] = [owner.reference]
    return metadata


def master_name(spec: JobSpec) -> str:
    """The name of the master's StatefulSet, of its Service, and of its Role and RoleBinding."""
    return f"{spec.name}-{MASTER}"


def master_account(spec: JobSpec) -> str:
    """The name of the master's ServiceAccount. Admission policies recognise a master by its prefix: deploy/chart."""
    return cluster_spec(spec).service_account or f"elasticdl-{MASTER}-{spec.name}"


def worker_account(spec: JobSpec) -> str:
    """The name of the ServiceAccount of workers and ps, which has no rights."""
    return f"{spec.name}-{WORKER}"


def spec_name(spec: JobSpec) -> str:
    """The name of the ConfigMap with the job's description, which owns the pods of workers and ps."""
    return f"{spec.name}-spec"


def pod_name(spec: JobSpec, replica: str) -> str:
    return f"{spec.name}-{replica}"


def metrics_port(spec: JobSpec) -> int:
    return spec.metrics_port or METRICS_PORT
