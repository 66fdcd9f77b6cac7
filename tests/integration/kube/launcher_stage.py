"""A PodLauncher against a real API server. The tests act as scheduler and kubelet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from elasticdl.kube.api import Api
from elasticdl.kube.kinds import POD
from elasticdl.launcher.interface import LaunchCommand, Report, SignalCommand
from elasticdl.launcher.kubernetes.naming import Owner, object_labels, pod_name
from elasticdl.launcher.kubernetes.pod_launcher import PodLauncher
from elasticdl.launcher.local import wire
from elasticdl.spec import ClusterSpec, DataSpec, JobSpec, ModelSpec, TimingSpec

Document = dict[str, Any]

WAIT_S = 30.0
OWNER = Owner("v1", "ConfigMap", "owner", "00000000-0000-0000-0000-00000000000a")
SPEC = JobSpec(
    name="mnist",
    model=ModelSpec(definition="mnist.forward"),
    data=DataSpec(training="/data/train.csv"),
    cluster=ClusterSpec(image="registry.local/mnist:1"),
    timing=TimingSpec(grace_period_s=20.0),
)


def build_pod(spec: JobSpec, replica: str, role: str, owner: Owner, **options: Any) -> Document:
    """A pod on a node without a kubelet, so that its deletion waits until the test confirms it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(spec, replica),
            "labels": object_labels(spec, role, replica),
            "annotations": {"memory_raises": str(options.get("memory_raises", 0))},
            "ownerReferences": [owner.reference],
        },
        "spec": {
            "nodeName": "node-1",
            "restartPolicy": "Never",
            "containers": [{"name": role, "image": "none", "env": _variables(options.get("environ", {}))}],
        },
    }


def _variables(environ: dict[str, str]) -> list[Document]:
    return [{"name": name, "value": value} for name, value in environ.items()]


class LauncherStage:
    """A launcher, its reports, and the acts of a scheduler and a kubelet."""

    def __init__(self, api: Api, spec: JobSpec = SPEC, **arguments: Any) -> None:
        self.api = api
        self._reports: asyncio.Queue[Document] = asyncio.Queue()
        arguments = {"build_pod": build_pod} | arguments

        def on_report(report: Report) -> None:
            self._reports.put_nowait(wire.report_document(report))

        self.launcher = PodLauncher(api, spec, api.namespace, OWNER, on_report, **arguments)

    def launch(self, replica: str, **options: Any) -> None:
        role = replica.partition("-")[0]
        self.launcher.execute(LaunchCommand(replica, role, **options))

    def signal(self, replica: str, number: int) -> None:
        self.launcher.execute(SignalCommand(replica, number))

    async def next_report(self) -> Document:
        return await asyncio.wait_for(self._reports.get(), WAIT_S)

    async def wait_for_report(self, event: str, replica: str) -> Document:
        """The next report of this kind about this replica; skips all others."""
        while True:
            document = await self.next_report()
            if (document["event"], document.get("replica")) == (event, replica):
                return document

    async def pod(self, replica: str) -> Document | None:
        return await asyncio.to_thread(self.api.get, POD, f"mnist-{replica}")

    async def set_status(self, replica: str, **status: Any) -> None:
        """Writes the status of a pod, as a kubelet or a scheduler does."""
        await asyncio.to_thread(self.api.patch, POD, f"mnist-{replica}", {"status": status}, sub="status")

    async def start_container(self, replica: str) -> None:
        state = {"running": {"startedAt": "2026-03-01T10:00:05Z"}}
        await self.set_status(replica, phase="Running", containerStatuses=[_container(replica, state)])

    async def end_container(
        self, replica: str, code: int, reason: str = "Error", finished_at: str = "2026-03-01T10:09:00Z"
    ) -> None:
        state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": finished_at}}
        phase = "Succeeded" if code == 0 else "Failed"
        await self.set_status(replica, phase=phase, containerStatuses=[_container(replica, state)])

    async def confirm_deletion(self, replica: str) -> None:
        """Confirms that the pod has ended, as the kubelet does."""
        await asyncio.to_thread(self.api.delete, POD, f"mnist-{replica}", grace_s=0)

    async def launch_and_start(self, replica: str) -> None:
        self.launch(replica)
        await self.wait_for_report("delayed", replica)
        await self.start_container(replica)
        await self.wait_for_report("started", replica)


def _container(replica: str, state: Document) -> Document:
    role = replica.partition("-")[0]
    return {"name": role, "ready": False, "restartCount": 0, "image": "none", "imageID": "", "state": state}


def run_scene(new_stage: Callable[[], LauncherStage], scene: Callable[[LauncherStage], Awaitable[None]]) -> None:
    """Runs the scene and the launcher together; an error of the launcher fails the test."""

    async def run() -> None:
        stage = new_stage()
        launcher = asyncio.create_task(stage.launcher.run())
        acts = asyncio.create_task(_as_coroutine(scene(stage)))
        await asyncio.wait({launcher, acts}, return_when=asyncio.FIRST_COMPLETED)
        for task in (acts, launcher):
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(launcher, acts, return_exceptions=True)

    asyncio.run(run())


async def _as_coroutine(scene: Awaitable[None]) -> None:
    await scene
