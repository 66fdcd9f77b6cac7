"""The operator on the suite's cluster, installed as a person installs it: with its chart and our image.

`of_this_checkout` is for those who measure and change it: nothing has to be built.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import image
from tests.cluster.kube import HOST_IMAGE, ROOT, STARTER, Kube, on_this_machine

NAMESPACE = "elasticdl-system"
RELEASE = "elasticdl"
LABELS = "app.kubernetes.io/name=elasticdl,app.kubernetes.io/component=operator"
_loaded: set[Path] = set()


def why_not() -> str:
    return image.why_not() or ("" if STARTER.is_file() else f"no {STARTER} to load an image with")


@contextmanager
def installed(kube: Kube) -> Iterator[None]:
    """Until the suite ends, unless it was there before."""
    was_there = RELEASE in helm(kube, "list", "--short")
    load(image.ensure("torch"))
    helm(
        kube, "upgrade", "--install", RELEASE, str(ROOT / "deploy" / "chart"), "--create-namespace",
        "--set=image.repository=elasticdl,image.tag=ci", "--wait", "--timeout=180s",
        "--take-ownership",  # of a definition that somebody applied without helm
    )  # fmt: skip
    restart(kube)  # the tag is the same, the image may not be
    yield
    if not was_there:
        helm(kube, "uninstall", RELEASE, "--wait")


@contextmanager
def of_this_checkout(kube: Kube) -> Iterator[None]:
    """The manifests, with this machine as the image. An operator that is there already is taken as it is."""
    if kube.kubectl("get", "deployments", "--all-namespaces", f"--selector={LABELS}", "--output=name").strip():
        yield
        return
    made = []
    try:
        for document in yaml.safe_load_all(kube.kubectl("kustomize", str(ROOT / "deploy" / "manifests"))):
            if document["kind"] == "Deployment":
                _run_here(document["spec"]["template"]["spec"])
            text = yaml.safe_dump(document)
            if kube.kubectl("create", "--filename=-", text=text, check=False):  # else it was there before
                made.append(text)
            if document["kind"] == "CustomResourceDefinition":
                kube.kubectl("wait", "--for=condition=Established", f"crd/{document['metadata']['name']}")
        where = f"--namespace={_namespace_of(made)}"
        kube.kubectl("rollout", "status", "deployment/elasticdl-operator", where, "--timeout=120s", timeout_s=150.0)
        yield
    finally:
        for text in reversed(made):
            kube.kubectl("delete", "--filename=-", "--ignore-not-found", text=text, check=False)


def _run_here(pod: dict[str, Any]) -> None:
    change = on_this_machine()
    (container,), (ours,) = pod["containers"], change["worker_pod"]["spec"]["containers"]
    container |= {"image": HOST_IMAGE, "env": ours["env"]}
    container["volumeMounts"] += ours["volumeMounts"]
    pod |= {"securityContext": change["pod"]["spec"]["securityContext"]}
    pod["volumes"] += change["pod"]["spec"]["volumes"]


def _namespace_of(made: list[str]) -> str:
    documents = [yaml.safe_load(text) for text in made]
    (found,) = [one["metadata"]["namespace"] for one in documents if one["kind"] == "Deployment"]
    return str(found)


def load(archive: Path) -> None:
    """Into all nodes; what the suite has loaded before is there."""
    if archive not in _loaded:
        subprocess.run([str(STARTER), "load", str(archive)], check=True, capture_output=True, timeout=600)
        _loaded.add(archive)


def helm(kube: Kube, *words: str) -> str:
    done = subprocess.run(
        ["helm", *words, "--namespace", NAMESPACE],
        env=kube.environ, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def restart(kube: Kube) -> None:
    kube.kubectl("rollout", "restart", "deployment/elasticdl-operator", f"--namespace={NAMESPACE}")
    ready(kube)


def ready(kube: Kube) -> None:
    kube.kubectl(
        "rollout", "status", "deployment/elasticdl-operator", f"--namespace={NAMESPACE}", "--timeout=120s",
        timeout_s=150.0,
    )  # fmt: skip


def pods(kube: Kube) -> list[str]:
    found = json.loads(kube.kubectl("get", "pods", f"--namespace={NAMESPACE}", f"--selector={LABELS}", "--output=json"))
    return [pod["metadata"]["name"] for pod in found["items"]]
