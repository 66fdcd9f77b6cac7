"""A real API server takes every object that a job is made of; nothing of it runs, there are no nodes.

Where etcd, kube-apiserver and kubectl are: $KUBEBUILDER_ASSETS, the convention of envtest.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from elasticdl.launcher import manifest
from tests.unit.launcher.jobs import GOLDEN, MASTER_SET, SECRETS, SMALL, job

ASSETS = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nowhere"))
KUBECTL = ASSETS / "kubectl" if (ASSETS / "kubectl").exists() else Path(shutil.which("kubectl") or "/nowhere")
START_S = 120.0
LOOK_S = 0.2

pytestmark = pytest.mark.skipif(
    not all((ASSETS / name).exists() for name in ("etcd", "kube-apiserver")) or not KUBECTL.exists(),
    reason="no etcd, kube-apiserver and kubectl in $KUBEBUILDER_ASSETS",
)

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def spawn(folder: Path, program: str, **options: object) -> subprocess.Popen[bytes]:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    with (folder / f"{program}.log").open("wb") as log:
        return subprocess.Popen([ASSETS / program, *words], stdout=log, stderr=log, cwd=folder)


def wait_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"{url}/readyz", headers={"Authorization": "Bearer admin-token"})
    deadline = time.monotonic() + START_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(request, timeout=5, context=context):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(LOOK_S)
    pytest.fail(f"kube-apiserver is not ready: {log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    folder = tmp_path_factory.mktemp("api")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (folder / "account.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    (folder / "tokens.csv").write_text('admin-token,admin,1,"system:masters"\n')
    store, peer, port = (free_port() for _ in range(3))
    etcd_url, peer_url = f"http://127.0.0.1:{store}", f"http://127.0.0.1:{peer}"
    etcd = spawn(
        folder, "etcd", data_dir=folder / "etcd", listen_client_urls=etcd_url, advertise_client_urls=etcd_url,
        listen_peer_urls=peer_url, initial_advertise_peer_urls=peer_url, initial_cluster=f"default={peer_url}",
        unsafe_no_fsync="true", log_level="error",
    )  # fmt: skip
    server = spawn(
        folder, "kube-apiserver", etcd_servers=etcd_url, bind_address="127.0.0.1", secure_port=port,
        cert_dir=folder / "certificates", token_auth_file=folder / "tokens.csv", authorization_mode="RBAC",
        service_cluster_ip_range="10.96.0.0/16", service_account_issuer="https://kubernetes.default.svc",
        service_account_key_file=folder / "account.key", service_account_signing_key_file=folder / "account.key",
    )  # fmt: skip

    def call(*words: str, document: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        access = [f"--server=https://127.0.0.1:{port}", "--token=admin-token", "--insecure-skip-tls-verify"]
        return subprocess.run(
            [KUBECTL, *access, *words], input=json.dumps(document) if document else None, text=True,
            capture_output=True, timeout=60, env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip

    try:
        wait_ready(f"https://127.0.0.1:{port}", server, folder / "kube-apiserver.log")
        furnish(call)
        yield call
    finally:
        for process in (server, etcd):
            process.kill()
            process.wait(30)


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
        for name in (f"{job_name}-master", f"{job_name}-worker")
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
    template = manifest.master_set(spec, None)["spec"]["template"]
    master = {"apiVersion": "v1", "kind": "Pod"} | template
    master["metadata"] |= {"name": "digits-master-0", "namespace": "strict"}
    pods = [master, *(manifest.replica_pod(spec, f"{role}-0", role, MASTER_SET) for role in ("worker", "ps"))]

    for pod in pods:
        done = created(kubectl, pod)
        assert (done.returncode, "violates PodSecurity" in done.stderr) == (int(is_root), is_root), done.stderr


def test_a_role_of_the_master_lets_it_do_its_work_and_nothing_else(kubectl: Kubectl) -> None:
    for document in manifest.belongings(job(SMALL, namespace="strict"), SECRETS, MASTER_SET):
        if document["kind"] in ("Role", "RoleBinding"):
            done = kubectl("create", "-f", "-", document=document)
            assert done.returncode == 0, done.stderr

    def may(verb: str, resource: str, namespace: str = "strict", name: str = "") -> bool:
        account = "--as=system:serviceaccount:strict:digits-master"
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
