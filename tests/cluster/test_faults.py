"""What a cluster does to a job: preemption, drains, a silent kubelet, an API server that is away. Nothing is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.job import SMALL, ClusterJob
from tests.cluster.kube import HOST_IMAGE, ROOT, SLOT, Kube, on_this_machine

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SLOTS = f"{SMALL},{SLOT}=2"
AWAY_S = 20.0
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


def test_workers_make_room_for_what_is_more_important_and_come_back(
    kube: Kube, tmp_path: Path, undisturbed: str
) -> None:
    kube.kubectl("apply", "-f", str(PRIORITIES))
    job = ClusterJob(kube, "preempted", tmp_path)
    job.train(4, "--min_workers=1", f"--worker_resource_request={SLOTS}", "--worker_pod_priority=low", slow=True)
    job.wait_members(4, step=2)
    try:
        kube.kubectl("apply", "-f", "-", text=web(2))
        job.wait_members(2)
        kube.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
        waits = [e["reason"] for e in job.events() if e["kind"] == "worker-waits"]
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
    job.delete()


def test_a_drained_node_is_left_cleanly(kube: Kube, tmp_path: Path, undisturbed: str) -> None:
    job = ClusterJob(kube, "drained", tmp_path)
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
    job.delete()


def test_training_goes_on_while_the_api_server_is_away(kube: Kube, tmp_path: Path, undisturbed: str) -> None:
    if not kube.is_ours:
        pytest.skip("the cluster is somebody else's: its API server stays")
    job = ClusterJob(kube, "cut-off", tmp_path)
    job.train(2, slow=True)
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
    job.delete()


def test_a_silent_kubelet_ends_no_training(kube: Kube, tmp_path: Path, undisturbed: str) -> None:
    if not kube.is_ours:
        pytest.skip("the cluster is somebody else's: its kubelets stay")
    job = ClusterJob(kube, "silent", tmp_path)
    job.train(2, slow=True)
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
    job.delete()
