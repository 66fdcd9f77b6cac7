"""The operator on the suite's cluster, installed by its chart with an image of ElasticDL.

`host_operator` needs no image.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import image
from tests.cluster.kube import ROOT, STARTER, Kube

NAMESPACE = "elasticdl-system"
RELEASE = "elasticdl"
LABELS = "app.kubernetes.io/name=elasticdl,app.kubernetes.io/component=operator"
_loaded: set[Path] = set()


def why_not() -> str:
    return image.why_not() or ("" if STARTER.is_file() else f"no {STARTER} to load an image with")


def is_there(kube: Kube) -> bool:
    """Whether the cluster has an operator, however it was installed."""
    return bool(kube.kubectl("get", "deployments", "--all-namespaces", f"--selector={LABELS}", "--output=name").strip())


@contextmanager
def installed(kube: Kube) -> Iterator[None]:
    """Installs the operator, and uninstalls it at the end unless it was installed before."""
    was_installed = RELEASE in helm(kube, "list", "--short")
    load(image.ensure("torch"))
    helm(
        kube, "upgrade", "--install", RELEASE, str(ROOT / "deploy" / "chart"), "--create-namespace",
        "--set=image.repository=elasticdl,image.tag=ci", "--wait", "--timeout=180s",
        "--take-ownership",  # of a definition that was applied without Helm
    )  # fmt: skip
    restart(kube)  # the tag is the same, the image may not be
    yield
    if not was_installed:
        helm(kube, "uninstall", RELEASE, "--wait")


@contextmanager
def serving(kube: Kube, namespace: str) -> Iterator[Kube]:
    """Installs the operator and creates a namespace for jobs."""
    kube.open_namespace(namespace)
    with installed(kube):
        yield kube
        kube.kubectl("delete", "elasticjobs", "--all", f"--namespace={namespace}", "--timeout=60s")
    kube.kubectl("delete", "namespace", namespace, "--timeout=100s")


def load(archive: Path) -> None:
    """Loads an image into all nodes, once in the suite."""
    if archive not in _loaded:
        subprocess.run([str(STARTER), "load", str(archive)], check=True, capture_output=True, timeout=600)
        _loaded.add(archive)


def helm(kube: Kube, *words: str) -> str:
    process = subprocess.run(
        ["helm", *words, "--namespace", NAMESPACE],
        env=kube.environ, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return process.stdout


def restart(kube: Kube) -> None:
    kube.kubectl("rollout", "restart", "deployment/elasticdl-operator", f"--namespace={NAMESPACE}")
    ready(kube)


def ready(kube: Kube) -> None:
    kube.kubectl(
        "rollout", "status", "deployment/elasticdl-operator", f"--namespace={NAMESPACE}", "--timeout=120s",
        timeout_s=150.0,
    )  # fmt: skip


def pods(kube: Kube) -> list[str]:
    document = json.loads(
        kube.kubectl("get", "pods", f"--namespace={NAMESPACE}", f"--selector={LABELS}", "--output=json")
    )
    return [pod["metadata"]["name"] for pod in document["items"]]
