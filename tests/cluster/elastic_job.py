"""A job of pods as users of kubectl run it: an ElasticJob."""

from __future__ import annotations

import json
from typing import Any

from tests.cluster.job import ClusterJob
from tests.cluster.kube import HOST_IMAGE, ROOT, on_this_machine
from tests.integration.job import BATCH, EPOCHS, LOGICAL_RANKS

SMALL = {"requests": {"cpu": "50m", "memory": "700Mi"}}
# All objects that a job may leave behind. (Events expire after an hour.)
KINDS = (
    "pods,jobs,statefulsets,services,configmaps,secrets,serviceaccounts,roles,rolebindings,networkpolicies,"
    "persistentvolumeclaims,elasticjobs"
)


class ElasticJob(ClusterJob):
    """An ElasticJob that trains `tiny.py` of the integration tests."""

    # ---- starting

    def apply(self, replicas: int, *, slow: bool = False, **spec: Any) -> None:
        """Runs `kubectl apply -f`."""
        self.shared_directory.mkdir(parents=True, exist_ok=True)
        if slow:
            self.slow.touch()
        path = self.shared_directory / f"{self.name}.json"
        path.write_text(json.dumps(self.document(replicas, **spec)))
        self.kubectl("apply", "--filename", str(path))

    def document(self, replicas: int, **spec: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "model": {
                "zoo": str(ROOT / "tests" / "integration"),
                "definition": "tiny.forward",
                "params": {"slow": str(self.slow), "pause_s": 0.2},
            },
            "data": {"training": "made-up", "format": "python"},
            "plan": {"epochs": EPOCHS, "global_batch_size": BATCH, "logical_ranks": LOGICAL_RANKS},
            "workers": {"replicas": replicas, "min": 1, "max": LOGICAL_RANKS, "threads": 1},
            "output": str(self.output),
            "cluster": {
                "image": HOST_IMAGE,
                "master": SMALL,
                "worker": SMALL,
                "volumes": [{"host_path": str(self.shared_directory), "mount_path": str(self.shared_directory)}],
                "overrides": on_this_machine(),
            },
        }
        metadata = {"name": self.name, "namespace": self.namespace}
        return {"apiVersion": "elasticdl.org/v1", "kind": "ElasticJob", "metadata": metadata, "spec": fields | spec}

    # ---- looking

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        return self.kube.kubectl(f"--namespace={self.namespace}", *arguments, check=check)

    def resource_status(self) -> dict[str, Any]:
        resource = json.loads(self.kubectl("get", "elasticjob", self.name, "--output=json"))
        status: dict[str, Any] = resource.get("status", {})
        return status

    def wait_phase(self, phase: str) -> dict[str, Any]:
        def status_in_phase() -> dict[str, Any] | None:
            status = self.resource_status()
            return status if status.get("phase") == phase else None

        status: dict[str, Any] = self.wait(status_in_phase, f"the phase {phase}")
        return status

    def row(self) -> dict[str, str]:
        """The row of the job in `kubectl get elasticjobs`, by column."""
        head, line = self.kubectl("get", "elasticjobs", self.name).splitlines()
        starts = [n for n, letter in enumerate(head) if letter != " " and (n == 0 or head[n - 1] == " ")]
        columns = zip(starts, [*starts[1:], None], strict=True)
        return {head[start:end].strip(): line[start:end].strip() for start, end in columns}

    def remaining_objects(self) -> list[str]:
        """All objects with the name of the job, labelled or not."""
        names = self.kubectl("get", KINDS, "--output=name").split()
        ends = (f"/{self.name}", f"-{self.name}")
        return [name for name in names if f"/{self.name}-" in name or name.endswith(ends)]

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    # ---- the end

    def delete(self) -> None:
        self.kubectl("delete", "elasticjob", self.name, "--ignore-not-found", "--wait=false")
