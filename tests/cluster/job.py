"""A job of pods, started by the command line: tests wait for it, disturb it and inspect its outcome."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.kube import HOST_IMAGE, ROOT, Kube, on_this_machine, write_adjustments
from tests.integration.job import BATCH, EPOCHS, LOGICAL_RANKS, digest

PATIENCE_S = 180.0
SMALL = "cpu=50m,memory=700Mi"
NAMESPACE = "default"
PREFIX = os.environ.get("ELASTICDL_CLUSTER_PREFIX", "")  # of names, if several suites share a cluster


class ClusterJob:
    """A job of pods. `shared_directory` is a directory that all pods see."""

    def __init__(self, kube: Kube, name: str, directory: Path, namespace: str = NAMESPACE) -> None:
        self.kube = kube
        self.name = name = PREFIX + name
        self.shared_directory = directory
        self.output = directory / f"{name}-output"
        self.slow = directory / f"{name}-slow"
        self.namespace = namespace

    # ---- starting

    def train(self, workers: int, *options: str, slow: bool = False, pause_s: float = 0.05) -> None:
        """Starts the job of `Jobs.train` of the integration tests. Until `hurry` a slow job pauses `pause_s` a pass."""
        self.start("train", *self.tiny(workers, pause_s), *options, slow=slow)

    def tiny(self, workers: int, pause_s: float = 0.05) -> list[str]:
        return [
            "--model_def=tiny.forward", f"--model_params=slow={self.slow};pause_s={pause_s}",
            "--training_data=made-up", f"--num_epochs={EPOCHS}", f"--global_batch_size={BATCH}",
            f"--logical_ranks={LOGICAL_RANKS}", f"--max_workers={LOGICAL_RANKS}", f"--num_workers={workers}",
        ]  # fmt: skip

    def start(self, verb: str, *options: str, slow: bool = False) -> None:
        self.shared_directory.mkdir(parents=True, exist_ok=True)
        if slow:
            self.slow.touch()
        self.kube.elasticdl(verb, "--detach", *self.options(), *options)

    def options(self) -> list[str]:
        """Options of a job with a model of the integration tests."""
        return [
            *self.pod_options(), f"--model_zoo={ROOT / 'tests' / 'integration'}", "--data_format=python",
            f"--output={self.output}",
        ]  # fmt: skip

    def pod_options(self, adjustments: dict[str, Any] | None = None) -> list[str]:
        """Options of every job; `adjustments` replace `on_this_machine`."""
        adjusted = write_adjustments(self.shared_directory / f"{self.name}.yaml", adjustments or on_this_machine())
        return [
            "--on=kubernetes", f"--job_name={self.name}", f"--namespace={self.namespace}", f"--image_name={HOST_IMAGE}",
            f"--cluster_spec={adjusted}",
            f"--volume=host_path={self.shared_directory},mount_path={self.shared_directory}",
            f"--master_resource_request={SMALL}", f"--worker_resource_request={SMALL}", "--threads=1",
        ]  # fmt: skip

    def hurry(self) -> None:
        self.slow.unlink(missing_ok=True)

    # ---- looking

    def status(self) -> dict[str, Any]:
        process = self.kube.elasticdl("status", self.name, "--on=kubernetes", f"--namespace={self.namespace}", "--json")
        status: dict[str, Any] = json.loads(process.stdout)
        return status

    def published(self) -> dict[str, Any]:
        """The status that its master has written last."""
        out = self.kube.kubectl(
            "get", "configmap", f"{self.name}-status", f"--namespace={self.namespace}", "--output=json", check=False
        )
        return json.loads(json.loads(out)["data"]["status.json"]) if out.strip() else {}

    def result(self) -> dict[str, Any]:
        def read_result() -> dict[str, Any] | None:
            out = self.kube.kubectl(
                "get", "configmap", f"{self.name}-status", f"--namespace={self.namespace}", "--output=json", check=False
            )
            data = json.loads(out)["data"] if out.strip() else {}
            return json.loads(data["result.json"]) if "result.json" in data else None

        result: dict[str, Any] = self.wait(read_result, "the end")
        return result

    def wait_retired(self) -> None:
        """Waits until the master of a job that is over has scaled its StatefulSet to 0."""

        def is_retired() -> bool:
            master = self.kube.get("statefulset", f"{self.name}-master", f"--namespace={self.namespace}")
            return master["spec"]["replicas"] == 0 and not self.pods("master")

        self.wait(is_retired, "the master to retire")

    def events(self) -> list[dict[str, Any]]:
        config_map = self.kube.get("configmap", f"{self.name}-status", f"--namespace={self.namespace}")
        return [json.loads(line) for line in config_map["data"]["events.jsonl"].splitlines()]

    def pods(self, role: str = "") -> dict[str, dict[str, Any]]:
        selector = f"elasticdl.org/job={self.name}" + (f",elasticdl.org/role={role}" if role else "")
        pods = self.kube.get("pods", f"--namespace={self.namespace}", f"--selector={selector}")
        return {pod["metadata"]["name"]: pod for pod in pods["items"]}

    def wait_members(self, count: int, step: int = 0) -> list[str]:
        """Waits until this number of workers trains. Returns their names."""

        def members() -> list[str] | None:
            status = self.published()
            workers = [worker for worker in status.get("workers", []) if worker.get("state") == "member"]
            names = [worker["id"] for worker in workers if worker.get("rank", 0) >= 0]
            return names if len(names) == count and int(status.get("step", 0)) >= step else None

        names: list[str] = self.wait(members, f"{count} members at step {step}")
        return names

    def wait(self, poll: Callable[[], Any], description: str, patience_s: float = PATIENCE_S) -> Any:
        deadline = time.monotonic() + patience_s
        while not (value := poll()):
            assert time.monotonic() < deadline, f"waited in vain for {description} of {self.name}\n{self.story()}"
            time.sleep(0.2)
        return value

    def story(self) -> str:
        namespace, selector = f"--namespace={self.namespace}", f"--selector=elasticdl.org/job={self.name}"
        parts = [self.kube.kubectl("get", "pods", "-o", "wide", namespace, selector, check=False)]
        parts.append(self.kube.kubectl("get", "events", "--sort-by=.lastTimestamp", namespace, check=False)[-4000:])
        for name in self.pods():
            log = self.kube.kubectl("logs", name, "--tail=30", namespace, check=False)
            parts.append(f"--- {name}\n{log}")
        return "\n".join(parts)

    # ---- outcome

    def digest(self) -> str:
        result = self.result()
        assert (result["phase"], result["exit_code"]) == ("succeeded", 0), f"{result}\n{self.story()}"
        return digest(self.output / "model.safetensors")

    def delete(self) -> None:
        namespace = f"--namespace={self.namespace}"
        self.kube.kubectl(
            "delete", "statefulset", f"{self.name}-master", namespace, "--ignore-not-found", "--wait=false"
        )


Named = Callable[[str], ClusterJob]  # the fixture that makes them
