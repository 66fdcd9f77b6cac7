"""A real API server accepts every object of a job. Nothing runs, because there are no nodes."""

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
    """Runs kubectl against a separate server, because priority classes belong to no namespace."""
    folder = programs()
    program = shutil.which("kubectl", path=folder) or shutil.which("kubectl")
    if folder is None or program is None:
        pytest.skip("no etcd, kube-apiserver and kubectl on this machine: set KUBEBUILDER_ASSETS")
    with ApiServer(tmp_path_factory.mktemp("api"), checks_accounts=True) as server:
        kubeconfig = f"--kubeconfig={server.kubeconfig()}"

        def call(*words: str, document: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [program, kubeconfig, *words], input=json.dumps(document) if document else None, text=True,
                capture_output=True, timeout=60, check=False,
            )  # fmt: skip

        create_prerequisites(call)
        yield call


def create_prerequisites(kubectl: Kubectl) -> None:
    """Creates namespaces, priority classes and accounts, which must exist for pods."""
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
        process = kubectl("create", "-f", "-", document=document)
        assert process.returncode == 0, process.stderr


def dry_run(kubectl: Kubectl, document: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", document=document)


@pytest.mark.parametrize("name", GOLDEN)
def test_every_object_is_accepted(kubectl: Kubectl, name: str) -> None:
    refused = {}
    for document in GOLDEN[name]():
        if document["kind"] == "ServiceAccount":  # it exists; another name does as well
            document["metadata"]["name"] += "-again"
        process = dry_run(kubectl, document)
        if process.returncode or "Warning" in process.stderr:
            refused[f"{document['kind']} {document['metadata']['name']}"] = process.stderr

    assert refused == {}


def test_an_object_with_an_unknown_key_is_refused(kubectl: Kubectl) -> None:
    document = deepcopy(GOLDEN["small"]()[0])
    document["spec"]["replicaCount"] = 1

    assert "replicaCount" in dry_run(kubectl, document).stderr


@pytest.mark.parametrize("is_root", [False, True])
def test_pods_comply_with_the_restricted_standard_unless_they_run_as_root(kubectl: Kubectl, is_root: bool) -> None:
    spec = job(SMALL, namespace="strict", is_root=is_root)
    template = manifest.master_stateful_set(spec, None)["spec"]["template"]
    master = {"apiVersion": "v1", "kind": "Pod"} | template
    master["metadata"] |= {"name": "digits-master-0", "namespace": "strict"}
    pods = [master, *(manifest.replica_pod(spec, f"{role}-0", role, MASTER_SET) for role in ("worker", "ps"))]

    for pod in pods:
        process = dry_run(kubectl, pod)
        assert (process.returncode, "violates PodSecurity" in process.stderr) == (int(is_root), is_root), process.stderr


def test_the_role_of_a_master_has_only_the_rights_that_it_needs(kubectl: Kubectl) -> None:
    for document in manifest.job_objects(job(SMALL, namespace="strict"), SECRETS, MASTER_SET):
        if document["kind"] in ("Role", "RoleBinding"):
            process = kubectl("create", "-f", "-", document=document)
            assert process.returncode == 0, process.stderr

    def may(verb: str, resource: str, namespace: str = "strict", name: str = "") -> bool:
        account = "--as=system:serviceaccount:strict:elasticdl-master-digits"
        resource, _, subresource = resource.partition("/")
        words = [
            "auth",
            "can-i",
            verb,
            f"{resource}/{name}" if name else resource,
            f"--subresource={subresource}",
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
