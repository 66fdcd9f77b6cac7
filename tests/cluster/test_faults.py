"""Jobs survive preemption, drains, a silent kubelet and an outage of the API server without losing work."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.job import SMALL, Named
from tests.cluster.kube import HOST_IMAGE, ROOT, SLOT, Kube, on_this_machine

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SLOTS = f"{SMALL},{SLOT}=2"
AWAY_S = 20.0
LONG_S = 0.5  # a pass while slow: the job outlasts what is done to it
PRIORITIES = ROOT / "deploy" / "manifests" / "priorities.yaml"


def web(replicas: int) -> str:
    """A Deployment of high priority that wants the same scarce good."""
    import yaml

    template = on_this_machine()["pod"]
    mounts = on_this_machine()["worker_pod"]["spec"]["containers"][0]["volumeMounts"]
    container = {
        "name": "web", "image": HOST_IMAGE, "command": ["/usr/bin/sleep", "infinity"], "volumeMounts": mounts,
        "resources": {"requests": {SLOT: 2}, "limits": {SLOT: 2}},
    }  # fmt: skip
    spec = {
        "priorityClassName": "elasticdl-high", "terminationGracePeriodSeconds": 0, "containers": [container],
        "volumes": template["spec"]["volumes"],
    }  # fmt: skip
    document = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
        },
    }  # fmt: skip
    return str(yaml.safe_dump(document))


def test_preempted_workers_return_when_there_is_room(kube: Kube, named: Named, undisturbed: str) -> None:
    kube.kubectl("apply", "-f", str(PRIORITIES))
    job = named("preempted")
    job.train(
        4,
        "--min_workers=1",
        f"--worker_resource_request={SLOTS}",
        "--worker_pod_priority=low",
        slow=True,
        pause_s=LONG_S,
    )
    job.wait_members(4, step=2)
    try:
        kube.kubectl("apply", "-f", "-", text=web(2))
        job.wait_members(2)
        kube.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
        waits = [e["reason"] for e in job.events() if e["kind"] == "worker-delayed"]
        assert any(SLOT in reason for reason in waits), waits  # the scheduler's own words
        kube.kubectl("delete", "deployment", "web")
        job.wait_members(4)
        job.hurry()
        assert job.digest() == undisturbed
    finally:
        kube.kubectl("delete", "deployment", "web", "--ignore-not-found")
    assert job.result()["workers_failed"] == 0
    lost = [
        e["reason"] for e in job.events() if e["kind"] in ("worker-left", "worker-lost") and "preempted" in e["reason"]
    ]
    assert len(lost) >= 2, job.events()


def test_workers_leave_a_drained_node_without_a_failure(kube: Kube, named: Named, undisturbed: str) -> None:
    job = named("drained")
    job.train(2, "--min_workers=1", slow=True)
    job.wait_members(2, step=2)
    node = job.pods("worker")["drained-worker-0"]["spec"]["nodeName"]
    try:
        kube.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s")
        job.wait_members(2, step=5)
        assert node not in {
            pod["spec"]["nodeName"] for pod in job.pods("worker").values() if pod["status"]["phase"] == "Running"
        }
    finally:
        kube.kubectl("uncordon", node)
    job.hurry()
    assert job.digest() == undisturbed


def test_training_continues_during_an_outage_of_the_api_server(kube: Kube, named: Named, undisturbed: str) -> None:
    if not kube.is_ours:
        pytest.skip("the cluster is somebody else's: its API server stays")
    job = named("cut-off")
    job.train(2, slow=True, pause_s=LONG_S)
    job.wait_members(2, step=2)
    kube.starter("stop", "kube-apiserver", "--kill")
    try:
        time.sleep(AWAY_S)  # the fault lasts so long
    finally:
        kube.starter("start", "kube-apiserver")
    before = int(job.wait(job.published, "the API server").get("step", 0))
    job.wait_members(2, step=before + 1)
    job.hurry()
    assert job.digest() == undisturbed
    assert job.result()["workers_failed"] == 0


def test_training_continues_without_a_kubelet(kube: Kube, named: Named, undisturbed: str) -> None:
    """Its pods train on, though the cluster has given them up; the job needs them no less."""
    if not kube.is_ours:
        pytest.skip("the cluster is somebody else's: its kubelets stay")
    job = named("silent")
    job.train(2, slow=True, pause_s=LONG_S)
    job.wait_members(2, step=2)
    kube.starter("stop", "kubelet-2", "--kill")
    try:
        kube.kubectl("wait", "--for=condition=Ready=Unknown", "node/node-2", "--timeout=90s")
        before = int(job.published().get("step", 0))
        job.wait(lambda: int(job.published().get("step", 0)) > before, "another step")
    finally:
        kube.starter("start", "kubelet-2")
    job.hurry()
    assert job.digest() == undisturbed


def test_a_lost_node_costs_only_its_workers(kube: Kube, named: Named, undisturbed: str) -> None:
    """Kubelet and containers go at once, as when a machine loses its power: nobody can say that the pod is over."""
    if not kube.is_ours:
        pytest.skip("the cluster is somebody else's: its nodes stay")
    job = named("powerless")
    job.train(2, "--min_workers=1", slow=True, pause_s=LONG_S)
    job.wait_members(2, step=2)
    nodes = {name: pod["spec"]["nodeName"] for name, pod in job.pods().items()}
    safe = nodes[f"{job.name}-master-0"]
    lost = next(node for node in nodes.values() if node != safe)
    kubelet = f"kubelet-{lost.removeprefix('node-')}"
    kube.starter("stop", kubelet, "--kill")
    try:
        for name, node in nodes.items():
            if node == lost:
                kill_containers(name)
        job.wait_members(2, step=5)  # one of them new, on the node that is left
        there = {pod["spec"].get("nodeName") for name, pod in job.pods("worker").items() if name not in nodes}
        assert there == {safe}, there
    finally:
        kube.starter("start", kubelet)
    job.hurry()
    assert job.digest() == undisturbed
    assert job.result()["workers_failed"] <= 1


def kill_containers(pod: str) -> None:
    """kill -9 of all that runs in it, behind the kubelet's back: the nodes are this machine."""
    variable = f"ELASTICDL_POD_NAME={pod}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variable in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
