"""The operator as deploy/manifests installs it, but with this machine as its image, so that none is built."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from tests.cluster.kube import HOST_IMAGE, ROOT, Kube, on_this_machine

NAMESPACE = "elasticdl"
USER = f"system:serviceaccount:{NAMESPACE}:elasticdl-operator"


@contextmanager
def running(kube: Kube, *values: str) -> Iterator[None]:
    """Installs the operator; deletes the created objects at the end. `values` are values of the chart."""
    created = []
    try:
        for document in chart(kube, *values) if values else manifests(kube):
            text = json.dumps(with_host_image(document))
            if kube.kubectl("create", "--filename=-", text=text, check=False):
                created.append(text)
        kube.wait_for_definition()
        _wait_until_ready(kube)
        yield
    finally:
        for text in reversed(created):
            kube.kubectl("delete", "--filename=-", "--ignore-not-found", "--timeout=100s", text=text)


def manifests(kube: Kube) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(kube.kubectl("kustomize", str(ROOT / "deploy" / "manifests"))))


def chart(kube: Kube, *values: str) -> list[dict[str, Any]]:
    options = [word for value in values for word in ("--set", value)]
    process = subprocess.run(
        ["helm", "template", "elasticdl", str(ROOT / "deploy" / "chart"), "--namespace", NAMESPACE, *options],
        env=kube.environ, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return [namespace, *(document for document in yaml.safe_load_all(process.stdout) if document)]


def _wait_until_ready(kube: Kube) -> None:
    deployment = ("deployment/elasticdl-operator", f"--namespace={NAMESPACE}")
    try:
        kube.kubectl("rollout", "status", *deployment, "--timeout=60s")
    except AssertionError as exc:
        description = kube.kubectl("describe", "pods", f"--namespace={NAMESPACE}", check=False)
        raise AssertionError(f"{exc}\n{description}\n{kube.kubectl('logs', *deployment, check=False)}") from exc


def with_host_image(document: dict[str, Any]) -> dict[str, Any]:
    """Gives a Deployment this machine as its image; returns other objects unchanged."""
    if document["kind"] != "Deployment":
        return document
    overrides = on_this_machine()
    host_container = overrides["master_pod"]["spec"]["containers"][0]
    spec = document["spec"]["template"]["spec"]
    spec["volumes"] += overrides["pod"]["spec"]["volumes"]
    spec["securityContext"] |= {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0}  # the owner of the files
    container = spec["containers"][0]
    container |= {"image": HOST_IMAGE, "env": host_container["env"]}
    container["volumeMounts"] += host_container["volumeMounts"]
    document["spec"]["strategy"] = {"type": "Recreate"}
    return document
