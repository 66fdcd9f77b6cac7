"""A real API server takes every object that a job is made of; nothing of it runs, there are no nodes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from elasticdl.launcher.kubernetes import manifest
from tests.integration.kube.apiserver import ApiServer, programs
from tests.unit.launcher.jobs import GOLDEN, MASTER_SET, SECRETS, SMALL, job

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """With a server of its own: priority classes belong to no namespace."""
    found = programs()
    program = shutil.which("kubectl", path=found) or shutil.which("kubectl")
    if found is None or program is None:
        pytest.skip("no etcd, kube-apiserver and kubectl on this machine: set KUBEBUILDER_ASSETS")
    with ApiServer(tmp_path_factory.mktemp("api"), checks_accounts=True) as server:
        access = f"--kubeconfig={server.kubeconfig()}"

        def call(*words: str, document: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [program, access, *words], input=json.dumps(document) if document else None, text=True,
                capture_output=True, timeout=60, check=False,
            )  # fmt: skip

        furnish(call)
        yield call


def furnish(kubectl: Kubectl) -> None:
    """Namespaces, priority classes and accounts, which pods must find."""
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name, labels in (("training", {}), ("strict", {"pod-security.kubernetes.io/enforce": "restricted"}))
    ]
    objects += [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1}
        for name in ("elasticdl-high", "elasticdl-low", "our-own-class")
    ]
    objects += [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
        for namespace, job_name in (("default", "digits"), ("strict", "digits"), ("training", "test-train"))
        for name in (f"elasticdl-master-{job_name}", f"{job_name}-worker")
    ]
    for document in objects:
        done = kubectl("create", "-f", "-", document=document)
        assert done.returncode == 0, done.stderr


def created(kubectl: Kubectl, document: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", document=document)


@pytest.mark.parametrize("name", GOLDEN)
def test_every_object_is_accepted(kubectl: Kubectl, name: str) -> None:
    refused = {}
    for document in GOLDEN[name]():
        if document["kind"] == "ServiceAccount":  # there already; under another name it is as good
            document["metadata"]["name"] += "-again"
        done = created(kubectl, document)
        if done.returncode or "Warning" in done.stderr:
            refused[f"{document['kind']} {document['metadata']['name']}"] = done.stderr

    assert refused == {}


def test_an_object_with_a_key_too_many_is_refused(kubectl: Kubectl) -> None:
    document = deepcopy(GOLDEN["small"]()[0])
    document["spec"]["replicaCount"] = 1

    assert "replicaCount" in created(kubectl, document).stderr


@pytest.mark.parametrize("is_root", [False, True])
def test_pods_keep_the_strictest_standard_unless_they_run_as_root(kubectl: Kubectl, is_root: bool) -> None:
    spec = job(SMALL, namespace="strict", is_root=is_root)
    template = manifest.master_stateful_set(spec, None)["spec"]["template"]
    master = {"apiVersion": "v1", "kind": "Pod"} | template
    master["metadata"] |= {"name": "digits-master-0", "namespace": "strict"}
    pods = [master, *(manifest.replica_pod(spec, f"{role}-0", role, MASTER_SET) for role in ("worker", "ps"))]

    for pod in pods:
        done = created(kubectl, pod)
        assert (done.returncode, "violates PodSecurity" in done.stderr) == (int(is_root), is_root), done.stderr


def test_a_role_of_the_master_lets_it_do_its_work_and_nothing_else(kubectl: Kubectl) -> None:
    for document in manifest.job_objects(job(SMALL, namespace="strict"), SECRETS, MASTER_SET):
        if document["kind"] in ("Role", "RoleBinding"):
            done = kubectl("create", "-f", "-", document=document)
            assert done.returncode == 0, done.stderr

    def may(verb: str, resource: str, namespace: str = "strict", name: str = "") -> bool:
        account = "--as=system:serviceaccount:strict:elasticdl-master-digits"
        resource, _, part = resource.partition("/")
        words = [
            "auth",
            "can-i",
            verb,
            f"{resource}/{name}" if name else resource,
            f"--subresource={part}",
            f"--namespace={namespace}",
            account,
        ]
        return kubectl(*words).stdout.strip() == "yes"

    assert may("create", "pods")
    assert may("update", "configmaps")
    assert may("patch", "events")
    assert may("patch", "statefulsets.apps/scale", name="digits-master")
    assert not may("patch", "statefulsets.apps/scale", name="other-master")
    assert not may("patch", "statefulsets.apps", name="digits-master")
    assert not any(may(verb, "secrets") for verb in ("get", "list", "create"))
    assert not may("create", "pods", "training")
    assert not may("create", "pods/exec")
    assert not may("create", "rolebindings.rbac.authorization.k8s.io")
