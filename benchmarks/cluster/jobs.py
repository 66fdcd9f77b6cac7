"""The two systems, as a person with kubectl has them: an ElasticJob; and torchrun in the pods of a StatefulSet.

Both train the benchmarks' MLP with up to three workers, each on two of the cluster's scarce slots, at low priority.
Pods are this machine (see `tests/cluster/kube.py`): same Python, same torch, same mounts.
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
GRACE_S = 5  # those who leave need less than a second of it; jobs that are deleted shall not take longer to end
LOW, HIGH = "elasticdl-low", "elasticdl-high"
# Of each step, in which a device would compute: workers of one machine shall not fight for its cores.
ENVIRON = {"OMP_NUM_THREADS": "1", "BENCH_PAUSE_S": "0.05"}
RENDEZVOUS_PORT = 29400
NOTING = Path(__file__).with_name("noting")
REQUESTS = SMALL["requests"] | {SLOT: str(SLOTS)}


class Job(Protocol):
    """What is applied and deleted again. Pods of workers have `workers`, all of its pods have `pods` as labels."""

    name: str
    workers: dict[str, str]
    pods: dict[str, str]
    spared: str  # a worker that stays: torchrun does not survive the pod that hosts its rendezvous

    def apply(self) -> None: ...

    def delete(self) -> None: ...


class Ours:
    system = "elasticdl"

    def __init__(self, kube: Kube, namespace: str, name: str, place: Path) -> None:
        self._job = ElasticJob(kube, name, place, namespace)
        self.name = self._job.name
        self.pods = {"elasticdl.org/job": self.name}
        self.workers = self.pods | {"elasticdl.org/role": "worker"}
        self.spared = f"{self.name}-worker-0"

    def apply(self) -> None:
        place = str(self._job.place)
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
                "volumes": [{"host_path": place, "mount_path": place}],
                "env": ENVIRON | {"BENCH_STEPS_DIR": f"{place}/steps/$(ELASTICDL_POD_NAME)"},
                "overrides": noting(on_this_machine()),
            },
        )

    def delete(self) -> None:
        self._job.delete()


class Torchrun:
    """As Kubeflow's Trainer starts it: named pods, c10d, the first pod hosts the rendezvous."""

    system = "torchrun"

    def __init__(self, kube: Kube, namespace: str, name: str, place: Path) -> None:
        self._kube, self.namespace, self.name, self._place = kube, namespace, name, place
        self.pods = self.workers = {"app": name}
        self.spared = f"{name}-0"

    def apply(self) -> None:
        path = self._place / f"{self.name}.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": self._documents()}))
        self._kube.kubectl("apply", f"--namespace={self.namespace}", "--filename", str(path))

    def delete(self) -> None:
        gone = (f"statefulset/{self.name}", f"service/{self.name}")
        self._kube.kubectl("delete", *gone, f"--namespace={self.namespace}", "--ignore-not-found", "--wait=false")

    def _documents(self) -> list[dict[str, Any]]:
        service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": self.pods}
        sets = {
            "replicas": WORKERS, "serviceName": self.name, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": self.pods},
            "template": {"metadata": {"labels": self.pods}, "spec": self._pod()},
        }  # fmt: skip
        metadata = {"name": self.name}
        return [
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": sets},
        ]

    def _pod(self) -> dict[str, Any]:
        change = noting(on_this_machine())
        (container,) = change["worker_pod"]["spec"]["containers"]
        environ = ENVIRON | {
            "BENCH_STEPS_DIR": f"{self._place}/steps/$(POD_NAME)",
            # torch 2.13 hangs in the second rendezvous when agents and workers share the store.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        own = [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
        own += [{"name": name, "value": value} for name, value in environ.items()]
        places: dict[str, dict[str, Any]] = {"place": {"hostPath": {"path": str(self._place)}}, "tmp": {"emptyDir": {}}}
        mounts = [{"name": "place", "mountPath": str(self._place)}, {"name": "tmp", "mountPath": "/tmp"}]
        return {
            "priorityClassName": LOW, "terminationGracePeriodSeconds": GRACE_S,
            "containers": [
                {
                    "name": "worker", "image": HOST_IMAGE, "command": self._command(),
                    "env": container["env"] + own, "volumeMounts": container["volumeMounts"] + mounts,
                    "resources": {"requests": REQUESTS, "limits": {SLOT: str(SLOTS)}},
                }
            ],
            "volumes": change["pod"]["spec"]["volumes"] + [{"name": name} | source for name, source in places.items()],
        }  # fmt: skip

    def _command(self) -> list[str]:
        endpoint = f"{self.spared}.{self.name}.{self.namespace}.svc.cluster.local:{RENDEZVOUS_PORT}"
        agent = ["python", "-m", "torch.distributed.run", f"--nnodes=1:{WORKERS}", "--nproc_per_node=1"]
        agent += ["--max_restarts=100", "--rdzv_backend=c10d", f"--rdzv_endpoint={endpoint}", "--rdzv_id=bench"]
        checkpoint = str(self._place / "checkpoint.pt")
        return [*agent, str(SCRIPT), "--global-batch", str(GLOBAL_BATCH), "--checkpoint", checkpoint]


def noting(change: dict[str, Any]) -> dict[str, Any]:
    """The same, and every Python notes when it began."""
    for role in ("master", "worker", "ps"):
        (container,) = change[f"{role}_pod"]["spec"]["containers"]
        container["env"] = [
            variable | ({"value": f"{variable['value']}:{NOTING}"} if variable["name"] == "PYTHONPATH" else {})
            for variable in container["env"]
        ]
    return change


def rival(name: str, node: str = "") -> dict[str, Any]:
    """A pod of high priority that wants as many slots as a worker has, and does nothing with them."""
    change = on_this_machine()
    (container,) = change["worker_pod"]["spec"]["containers"]
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "priorityClassName": HIGH, "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
            "volumes": change["pod"]["spec"]["volumes"],
            "containers": [
                {
                    "name": "rival", "image": HOST_IMAGE, "command": ["/usr/bin/sleep", "infinity"],
                    "volumeMounts": container["volumeMounts"], "resources": {"limits": {SLOT: str(SLOTS)}},
                }
            ],
        },
    }  # fmt: skip
