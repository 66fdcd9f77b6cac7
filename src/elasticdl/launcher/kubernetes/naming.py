"""Names, labels and owners of the objects of a job."""

from __future__ import annotations

from typing import Any, NamedTuple

from elasticdl.spec import ClusterSpec, JobSpec

Document = dict[str, Any]

MASTER_PORT = 50001
METRICS_PORT = 50002
HEALTH_PORT, HEALTH_PATH = 50003, "/healthz"  # of a master, for the kubelet alone

JOB_LABEL = "elasticdl.org/job"
ROLE_LABEL = "elasticdl.org/role"
REPLICA_LABEL = "elasticdl.org/replica"
SCRAPE_LABEL = "elasticdl.org/scrape-metrics"  # of a namespace whose pods may read metrics
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"

MASTER, WORKER, PS = "master", "worker", "ps"
STATUS = "status"  # of the ConfigMap by which a master says how its job stands
ROLES = (MASTER, WORKER, PS)


class Owner(NamedTuple):
    """Whose an object is: it goes when its owner goes."""

    api_version: str
    kind: str
    name: str
    uid: str

    @classmethod
    def from_object(cls, document: Document) -> Owner:
        """The owner that an object read from the API is to others."""
        metadata = document["metadata"]
        return cls(document["apiVersion"], document["kind"], metadata["name"], metadata["uid"])

    @property
    def reference(self) -> Document:
        """As its controller: that is what `kubectl drain` and autoscalers ask pods for before they move them."""
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
    found = {"app.kubernetes.io/name": "elasticdl", "app.kubernetes.io/instance": job, JOB_LABEL: job}
    if role:
        found[ROLE_LABEL] = role
    if replica:
        found[REPLICA_LABEL] = replica
    return found


def selector_labels(spec: JobSpec, role: str = "") -> dict[str, str]:
    """The labels by which pods of a job (and role) are found."""
    return {JOB_LABEL: spec.name} | ({ROLE_LABEL: role} if role else {})


def label_selector(spec: JobSpec, role: str = "") -> str:
    """The same as text, for a list or a watch."""
    return ",".join(f"{name}={value}" for name, value in selector_labels(spec, role).items())


def object_metadata(
    spec: JobSpec, name: str, role: str = "", *, replica: str = "", owner: Owner | None = None, queue: bool = False
) -> Document:
    cluster = cluster_spec(spec)
    found: Document = {"name": name}
    if cluster.namespace:
        found["namespace"] = cluster.namespace
    found["labels"] = object_labels(spec, role, replica)
    if queue and cluster.queue:
        found["labels"][QUEUE_LABEL] = cluster.queue
    if owner:
        found["ownerReferences"] = [owner.reference]
    return found


def master_name(spec: JobSpec) -> str:
    """Of the master's StatefulSet, of its Service, and of its rights."""
    return f"{spec.name}-{MASTER}"


def master_account(spec: JobSpec) -> str:
    """Of the master's ServiceAccount. By its first letters admission policies know a master: deploy/chart."""
    return cluster_spec(spec).service_account or f"elasticdl-{MASTER}-{spec.name}"


def worker_account(spec: JobSpec) -> str:
    """Of the ServiceAccount of workers and ps, which may nothing."""
    return f"{spec.name}-{WORKER}"


def spec_name(spec: JobSpec) -> str:
    """Of the ConfigMap with the job's description, which owns the pods of workers and ps."""
    return f"{spec.name}-spec"


def pod_name(spec: JobSpec, replica: str) -> str:
    return f"{spec.name}-{replica}"


def metrics_port(spec: JobSpec) -> int:
    return spec.metrics_port or METRICS_PORT
