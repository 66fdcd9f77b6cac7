"""A job of pods through the real command line: start it, wait, disturb it, look at what it left."""

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
PREFIX = os.environ.get("ELASTICDL_CLUSTER_PREFIX", "")  # of names, where several suites share a cluster


class ClusterJob:
    """`place` is a directory that all pods see."""

    def __init__(self, kube: Kube, name: str, place: Path, namespace: str = NAMESPACE) -> None:
        self.kube = kube
        self.name = name = PREFIX + name
        self.place = place
        self.output = place / f"{name}-output"
        self.slow = place / f"{name}-slow"
        self.namespace = namespace

    # ---- starting

    def train(self, workers: int, *options: str, slow: bool = False, pause_s: float = 0.05) -> None:
        """As `Jobs.train` of the integration tests does on one machine; slow until `hurry`: `pause_s` a pass."""
        self.start("train", *self.tiny(workers, pause_s), *options, slow=slow)

    def tiny(self, workers: int, pause_s: float = 0.05) -> list[str]:
        return [
            "--model_def=tiny.forward", f"--model_params=slow={self.slow};pause_s={pause_s}",
            "--training_data=made-up", f"--num_epochs={EPOCHS}", f"--global_batch_size={BATCH}",
            f"--logical_ranks={LOGICAL_RANKS}", f"--max_workers={LOGICAL_RANKS}", f"--num_workers={workers}",
        ]  # fmt: skip

    def start(self, verb: str, *options: str, slow: bool = False) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        if slow:
            self.slow.touch()
        self.kube.elasticdl(verb, "--detach", *self.options(), *options)

    def options(self) -> list[str]:
        """Of a job with a model of the integration tests."""
        return [
            *self.pod_options(), f"--model_zoo={ROOT / 'tests' / 'integration'}", "--data_format=python",
            f"--output={self.output}",
        ]  # fmt: skip

    def pod_options(self, adjustments: dict[str, Any] | None = None) -> list[str]:
        """Of every job; `adjustments` in place of `on_this_machine`."""
        adjusted = write_adjustments(self.place / f"{self.name}.yaml", adjustments or on_this_machine())
        return [
            "--on=kubernetes", f"--job_name={self.name}", f"--namespace={self.namespace}", f"--image_name={HOST_IMAGE}",
            f"--cluster_spec={adjusted}", f"--volume=host_path={self.place},mount_path={self.place}",
            f"--master_resource_request={SMALL}", f"--worker_resource_request={SMALL}", "--threads=1",
        ]  # fmt: skip

    def hurry(self) -> None:
        self.slow.unlink(missing_ok=True)

    # ---- looking

    def status(self) -> dict[str, Any]:
        said = self.kube.elasticdl("status", self.name, "--on=kubernetes", f"--namespace={self.namespace}", "--json")
        found: dict[str, Any] = json.loads(said.stdout)
        return found

    def published(self) -> dict[str, Any]:
        """What its master wrote down last, without asking it."""
        out = self.kube.kubectl(
            "get", "configmap", f"{self.name}-status", f"--namespace={self.namespace}", "--output=json", check=False
        )
        return json.loads(json.loads(out)["data"]["status.json"]) if out.strip() else {}

    def result(self) -> dict[str, Any]:
        def over() -> dict[str, Any] | None:
            out = self.kube.kubectl(
                "get", "configmap", f"{self.name}-status", f"--namespace={self.namespace}", "--output=json", check=False
            )
            data = json.loads(out)["data"] if out.strip() else {}
            return json.loads(data["result.json"]) if "result.json" in data else None

        found: dict[str, Any] = self.wait(over, "the end")
        return found

    def wait_retired(self) -> None:
        """Until its master, which is over, has given its pod back."""

        def retired() -> bool:
            found = self.kube.get("statefulset", f"{self.name}-master", f"--namespace={self.namespace}")
            return found["spec"]["replicas"] == 0 and not self.pods("master")

        self.wait(retired, "the master to give its pod back")

    def events(self) -> list[dict[str, Any]]:
        out = self.kube.get("configmap", f"{self.name}-status", f"--namespace={self.namespace}")
        return [json.loads(line) for line in out["data"]["events.jsonl"].splitlines()]

    def pods(self, role: str = "") -> dict[str, dict[str, Any]]:
        selector = f"elasticdl.org/job={self.name}" + (f",elasticdl.org/role={role}" if role else "")
        found = self.kube.get("pods", f"--namespace={self.namespace}", f"--selector={selector}")
        return {pod["metadata"]["name"]: pod for pod in found["items"]}

    def wait_members(self, count: int, step: int = 0) -> list[str]:
        """Until so many workers train; their names."""

        def members() -> list[str] | None:
            status = self.published()
            found = [w["id"] for w in status.get("workers", []) if w.get("state") == "member" and w.get("rank", 0) >= 0]
            return found if len(found) == count and int(status.get("step", 0)) >= step else None

        found: list[str] = self.wait(members, f"{count} members at step {step}")
        return found

    def wait(self, found: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
        deadline = time.monotonic() + patience_s
        while not (value := found()):
            assert time.monotonic() < deadline, f"waited in vain for {what} of {self.name}\n{self.story()}"
            time.sleep(0.2)
        return value

    def story(self) -> str:
        here, selector = f"--namespace={self.namespace}", f"--selector=elasticdl.org/job={self.name}"
        told = [self.kube.kubectl("get", "pods", "-o", "wide", here, selector, check=False)]
        told.append(self.kube.kubectl("get", "events", "--sort-by=.lastTimestamp", here, check=False)[-4000:])
        for name in self.pods():
            log = self.kube.kubectl("logs", name, "--tail=30", here, check=False)
            told.append(f"--- {name}\n{log}")
        return "\n".join(told)

    # ---- outcome

    def digest(self) -> str:
        result = self.result()
        assert (result["phase"], result["exit_code"]) == ("succeeded", 0), f"{result}\n{self.story()}"
        return digest(self.output / "model.safetensors")

    def delete(self) -> None:
        here = f"--namespace={self.namespace}"
        self.kube.kubectl("delete", "statefulset", f"{self.name}-master", here, "--ignore-not-found", "--wait=false")


Named = Callable[[str], ClusterJob]  # the fixture that makes them
