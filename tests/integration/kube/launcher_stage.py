"""A PodLauncher in an event loop before a real API server. The test plays scheduler and kubelet."""

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


def pod_of(spec: JobSpec, replica: str, role: str, owner: Owner, **asked: Any) -> Document:
    """A pod on a node that nobody else knows: deletions wait for a kubelet, as they do for real ones."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(spec, replica),
            "labels": object_labels(spec, role, replica),
            "annotations": {"memory_raises": str(asked.get("memory_raises", 0))},
            "ownerReferences": [owner.reference],
        },
        "spec": {
            "nodeName": "node-1",
            "restartPolicy": "Never",
            "containers": [{"name": role, "image": "none", "env": _variables(asked.get("environ", {}))}],
        },
    }


def _variables(environ: dict[str, str]) -> list[Document]:
    return [{"name": name, "value": value} for name, value in environ.items()]


class Stage:
    def __init__(self, api: Api, spec: JobSpec = SPEC, **arguments: Any) -> None:
        self.api = api
        self._events: asyncio.Queue[Document] = asyncio.Queue()
        arguments = {"build_pod": pod_of} | arguments

        def on_report(report: Report) -> None:
            self._events.put_nowait(wire.report_document(report))

        self.launcher = PodLauncher(api, spec, api.namespace, OWNER, on_report, **arguments)

    def launch(self, replica: str, **more: Any) -> None:
        role = replica.partition("-")[0]
        self.launcher.execute(LaunchCommand(replica, role, **more))

    def signal(self, replica: str, number: int) -> None:
        self.launcher.execute(SignalCommand(replica, number))

    async def next(self) -> Document:
        return await asyncio.wait_for(self._events.get(), WAIT_S)

    async def until(self, event: str, replica: str) -> Document:
        """The next of this kind about this replica; others are skipped."""
        while True:
            document = await self.next()
            if (document["event"], document.get("replica")) == (event, replica):
                return document

    async def pod(self, replica: str) -> Document | None:
        return await asyncio.to_thread(self.api.get, POD, f"mnist-{replica}")

    async def play(self, replica: str, **status: Any) -> None:
        """What a kubelet or a scheduler writes."""
        await asyncio.to_thread(self.api.patch, POD, f"mnist-{replica}", {"status": status}, sub="status")

    async def run(self, replica: str) -> None:
        state = {"running": {"startedAt": "2026-03-01T10:00:05Z"}}
        await self.play(replica, phase="Running", containerStatuses=[_container(replica, state)])

    async def exit(self, replica: str, code: int, reason: str = "Error", at: str = "2026-03-01T10:09:00Z") -> None:
        state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}
        phase = "Succeeded" if code == 0 else "Failed"
        await self.play(replica, phase=phase, containerStatuses=[_container(replica, state)])

    async def vanish(self, replica: str) -> None:
        """The kubelet confirms that the pod is gone."""
        await asyncio.to_thread(self.api.delete, POD, f"mnist-{replica}", grace_s=0)

    async def launched(self, replica: str) -> None:
        """Launch it and let it run."""
        self.launch(replica)
        await self.until("delayed", replica)
        await self.run(replica)
        await self.until("started", replica)


def _container(replica: str, state: Document) -> Document:
    role = replica.partition("-")[0]
    return {"name": role, "ready": False, "restartCount": 0, "image": "none", "imageID": "", "state": state}


def play(stage_of: Callable[[], Stage], scene: Callable[[Stage], Awaitable[None]]) -> None:
    """Run the scene before a launcher that ends with it; an error of the launcher's own fails the test."""

    async def run() -> None:
        stage = stage_of()
        launcher = asyncio.create_task(stage.launcher.run())
        acting = asyncio.create_task(_as_coroutine(scene(stage)))
        await asyncio.wait({launcher, acting}, return_when=asyncio.FIRST_COMPLETED)
        for task in (acting, launcher):
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(launcher, acting, return_exceptions=True)

    asyncio.run(run())


async def _as_coroutine(scene: Awaitable[None]) -> None:
    await scene
