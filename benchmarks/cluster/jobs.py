"""The two systems, as a user of kubectl runs them: an ElasticJob, and torchrun in the pods of a StatefulSet.

Both train the benchmarks' MLP with up to three workers, each on two of the cluster's scarce slots, at low priority.
Pods use the files of this machine (see `tests/cluster/kube.py`): same Python, same torch, same mounts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from peers.job import GLOBAL_BATCH
from peers.torchrun_job import SCRIPT

from tests.cluster.elastic_job import SMALL, ElasticJob
from tests.cluster.kube import HOST_IMAGE, ROOT, SLOT, Kube, on_this_machine

WORKERS = 3
SLOTS = 2  # of each worker
GRACE_S = 5  # a worker that leaves needs less than a second; a deleted job must not take longer than this to end
LOW, HIGH = "elasticdl-low", "elasticdl-high"
# Each step pauses as if a device computed: workers on one machine must not compete for its cores.
ENVIRON = {"OMP_NUM_THREADS": "1", "BENCH_PAUSE_S": "0.05"}
RENDEZVOUS_PORT = 29400
STARTUP_MARKS = Path(__file__).with_name("startup_marks")
REQUESTS = SMALL["requests"] | {SLOT: str(SLOTS)}


class PodJob(Protocol):
    """A job that is applied and deleted. Pods of workers have `worker_labels`, all of its pods have `pod_labels`."""

    name: str
    worker_labels: dict[str, str]
    pod_labels: dict[str, str]
    spared_pod: str  # the worker that is never preempted: torchrun does not survive the pod that hosts its rendezvous

    def apply(self) -> None: ...

    def delete(self) -> None: ...


class ElasticDLPods:
    system = "elasticdl"

    def __init__(self, kube: Kube, namespace: str, name: str, directory: Path) -> None:
        self._job = ElasticJob(kube, name, directory, namespace)
        self.name = self._job.name
        self.pod_labels = {"elasticdl.org/job": self.name}
        self.worker_labels = self.pod_labels | {"elasticdl.org/role": "worker"}
        self.spared_pod = f"{self.name}-worker-0"

    def apply(self) -> None:
        directory = str(self._job.shared_directory)
        self._job.apply(
            WORKERS,
            model={"zoo": str(ROOT / "benchmarks" / "models"), "definition": "mlp.forward"},
            data={"training": "made-up", "format": "python"},
            plan={"epochs": 1000, "global_batch_size": GLOBAL_BATCH},
            workers={"replicas": WORKERS, "min": 1, "max": WORKERS, "threads": 1},
            timing={"grace_period_s": GRACE_S},
            cluster={
                "image": HOST_IMAGE,
                "master": SMALL,
                "worker": {"requests": REQUESTS, "priority": "low"},
                "volumes": [{"host_path": directory, "mount_path": directory}],
                "env": ENVIRON | {"BENCH_STEPS_DIR": f"{directory}/steps/$(ELASTICDL_POD_NAME)"},
                "overrides": with_startup_marks(on_this_machine()),
            },
        )

    def delete(self) -> None:
        self._job.delete()


class TorchrunPods:
    """As Kubeflow's Trainer starts it: named pods, c10d, the first pod hosts the rendezvous."""

    system = "torchrun"

    def __init__(self, kube: Kube, namespace: str, name: str, directory: Path) -> None:
        self._kube, self.namespace, self.name, self._directory = kube, namespace, name, directory
        self.pod_labels = self.worker_labels = {"app": name}
        self.spared_pod = f"{name}-0"

    def apply(self) -> None:
        path = self._directory / f"{self.name}.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": self._manifests()}))
        self._kube.kubectl("apply", f"--namespace={self.namespace}", "--filename", str(path))

    def delete(self) -> None:
        objects = (f"statefulset/{self.name}", f"service/{self.name}")
        self._kube.kubectl("delete", *objects, f"--namespace={self.namespace}", "--ignore-not-found", "--wait=false")

    def _manifests(self) -> list[dict[str, Any]]:
        service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": self.pod_labels}
        stateful_set = {
            "replicas": WORKERS, "serviceName": self.name, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": self.pod_labels},
            "template": {"metadata": {"labels": self.pod_labels}, "spec": self._pod()},
        }  # fmt: skip
        metadata = {"name": self.name}
        return [
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": stateful_set},
        ]

    def _pod(self) -> dict[str, Any]:
        adjustments = with_startup_marks(on_this_machine())
        (container,) = adjustments["worker_pod"]["spec"]["containers"]
        environ = ENVIRON | {
            "BENCH_STEPS_DIR": f"{self._directory}/steps/$(POD_NAME)",
            # torch 2.13 hangs in the second rendezvous when agents and workers share the store.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        variables = [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
        variables += [{"name": name, "value": value} for name, value in environ.items()]
        volumes: dict[str, dict[str, Any]] = {
            "place": {"hostPath": {"path": str(self._directory)}},
            "tmp": {"emptyDir": {}},
        }
        mounts = [{"name": "place", "mountPath": str(self._directory)}, {"name": "tmp", "mountPath": "/tmp"}]
        return {
            "priorityClassName": LOW, "terminationGracePeriodSeconds": GRACE_S,
            "containers": [
                {
                    "name": "worker", "image": HOST_IMAGE, "command": self._command(),
                    "env": container["env"] + variables, "volumeMounts": container["volumeMounts"] + mounts,
                    "resources": {"requests": REQUESTS, "limits": {SLOT: str(SLOTS)}},
                }
            ],
            "volumes": [
                *adjustments["pod"]["spec"]["volumes"], *({"name": name} | source for name, source in volumes.items())
            ],
        }  # fmt: skip

    def _command(self) -> list[str]:
        endpoint = f"{self.spared_pod}.{self.name}.{self.namespace}.svc.cluster.local:{RENDEZVOUS_PORT}"
        agent = ["python", "-m", "torch.distributed.run", f"--nnodes=1:{WORKERS}", "--nproc_per_node=1"]
        agent += ["--max_restarts=100", "--rdzv_backend=c10d", f"--rdzv_endpoint={endpoint}", "--rdzv_id=bench"]
        checkpoint = str(self._directory / "checkpoint.pt")
        return [*agent, str(SCRIPT), "--global-batch", str(GLOBAL_BATCH), "--checkpoint", checkpoint]


def with_startup_marks(adjustments: dict[str, Any]) -> dict[str, Any]:
    """Returns the adjustments with which every Python of a pod also records when it started."""
    for role in ("master", "worker", "ps"):
        (container,) = adjustments[f"{role}_pod"]["spec"]["containers"]
        container["env"] = [
            variable | ({"value": f"{variable['value']}:{STARTUP_MARKS}"} if variable["name"] == "PYTHONPATH" else {})
            for variable in container["env"]
        ]
    return adjustments


def rival_pod(name: str, node: str = "") -> dict[str, Any]:
    """Returns a pod of high priority that requests as many slots as a worker has, and does nothing with them."""
    adjustments = on_this_machine()
    (container,) = adjustments["worker_pod"]["spec"]["containers"]
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "priorityClassName": HIGH, "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
            "volumes": adjustments["pod"]["spec"]["volumes"],
            "containers": [
                {
                    "name": "rival", "image": HOST_IMAGE, "command": ["/usr/bin/sleep", "infinity"],
                    "volumeMounts": container["volumeMounts"], "resources": {"limits": {SLOT: str(SLOTS)}},
                }
            ],
        },
    }  # fmt: skip
